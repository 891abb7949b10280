package handler

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/oci/spec/host"
)

// Defaults is the part of the engine's configuration that sets what no field of the CRI sets.
type Defaults struct {
	// Ulimits are the resource limits of processes by name, as "soft:hard" or one number for both.
	Ulimits map[string]string `toml:"default_ulimits" comment:"Resource limits of the processes of containers, by the name that ulimit has for them: core, cpu, data, fsize, locks, memlock, msgqueue, nice, nofile, nproc, rss, rtprio, rttime, sigpending, stack, as. A value is a number (bytes, files, processes), \"unlimited\", or \"soft:hard\". Limits that are not listed, or empty, are podd's own. Without CAP_SYS_RESOURCE podd cannot set more than its own hard limits, and sets those."`
	// MinGoMaxProcs is the least value of GOMAXPROCS that is set, 0 to set none.
	MinGoMaxProcs int `toml:"min_injected_gomaxprocs" comment:"Set GOMAXPROCS of containers that request CPU and have no CPU limit, unless their image or pod does: to twice the requested CPUs, but at least this. Go programs take all CPUs of the node for theirs otherwise. With a limit they go by that since Go 1.25. 0: do not set it."`
	// ExecCPUAffinity is "" or ExecOnFirstCPU.
	ExecCPUAffinity string `toml:"exec_cpu_affinity" comment:"On which CPUs commands (exec) run in a container with a cpuset, with runc 1.3 or crun 1.21. first: on its first one, so that probes do not disturb threads that poll on the others. Empty: on all of them."`
	// Capabilities are those of containers that add and drop none.
	Capabilities []string `toml:"default_capabilities" comment:"Capabilities of containers, to which each adds and from which it drops. Fewer make images fail that expect them."`
	// Env are NAME=value.
	Env []string `toml:"default_env" comment:"Environment variables of all containers, each NAME=value. Images and containers override them."`
	// PidsLimit is the maximal number of tasks of a container, -1 for no limit.
	PidsLimit int64 `toml:"pids_limit" comment:"Maximum number of processes and threads of a container. -1: no limit, the kubelet's podPidsLimit bounds the pod."`
	// ShmSize is in bytes.
	ShmSize int64 `toml:"shm_size" comment:"Size of a pod's /dev/shm in bytes."`
	// Timezone is "", Local or a name of the IANA.
	Timezone string `toml:"timezone" comment:"Time zone of containers: written to /etc/localtime of their root filesystem. Local: the node's. Otherwise a name of the IANA database, such as Europe/Berlin, which the node must have in /usr/share/zoneinfo. Empty: the image's."`
	// ReadOnly makes all root filesystems read-only.
	ReadOnly bool `toml:"read_only" comment:"Make the root filesystem of every container read-only. /run, /tmp and /var/tmp are a tmpfs then, which has the image's files."`
	// HooksDirs are directories of hooks in the format of containers/common.
	HooksDirs []string `toml:"hooks_dirs" comment:"Directories of OCI hooks (oci-hooks(5)), read when a container is created. Later directories override files of the same name. The programs run as root on the node. Used by others: /usr/share/containers/oci/hooks.d, /etc/containers/oci/hooks.d."`
	// BlockIOConfigFile has classes of block I/O.
	BlockIOConfigFile string `toml:"blockio_config_file" comment:"Classes of block I/O: weights and limits by device, in the format of goresctrl (containerd's and CRI-O's key of that name), read when a container is created. Pods choose a class by the annotation blockio.resources.beta.kubernetes.io/pod, or /container.NAME, NRI plugins by blockio_class. Empty: annotations have no effect."`
	// DeviceOwnershipFromSecurityContext gives devices to the container's user and group.
	DeviceOwnershipFromSecurityContext bool `toml:"device_ownership_from_security_context" comment:"Give the devices that a container requests to its runAsUser and runAsGroup, unless these are 0. KubeVirt needs it. In a user namespace devices are the node's own and keep their owner."`
}

// ExecOnFirstCPU is a value of exec_cpu_affinity.
const ExecOnFirstCPU = "first"

// minShmSize is one page, the least that tmpfs keeps.
const minShmSize = 4096

// StandardDefaults returns podd's own defaults. The limits are those of a service of systemd, which containers have
// under containerd 2 and CRI-O, whose units set no limit of open files; but a container writes no core files unless it
// raises its limit.
func StandardDefaults() Defaults {
	return Defaults{
		Ulimits:      map[string]string{"core": "0:unlimited", "nofile": "1024:524288", "nproc": "unlimited"},
		Capabilities: spec.DefaultCapabilities(),
		PidsLimit:    -1,
		ShmSize:      64 << 20, // as in Docker and other CRI runtimes
	}
}

// Validate reports each wrong key.
func (d Defaults) Validate(problem func(key string, err error)) {
	right := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(d.Ulimits)) {
		right[name] = d.Ulimits[name]
		if _, err := rlimits(right); err != nil {
			problem("default_ulimits."+strconv.Quote(name), err)
			delete(right, name)
		}
	}
	for _, k := range []struct {
		key   string
		check func() error
	}{
		{"default_capabilities", func() error { _, err := spec.Capabilities(d.Capabilities); return err }},
		{"default_env", func() error { return spec.CheckEnv(d.Env) }},
		{"timezone", func() error { _, err := host.ReadTimezone(d.Timezone); return err }},
	} {
		if err := k.check(); err != nil {
			problem(k.key, err)
		}
	}
	if d.PidsLimit == 0 || d.PidsLimit < -1 {
		problem("pids_limit", fmt.Errorf("%d is neither positive nor -1, no limit", d.PidsLimit))
	}
	if d.MinGoMaxProcs < 0 {
		problem("min_injected_gomaxprocs", fmt.Errorf("%d is negative", d.MinGoMaxProcs))
	}
	if a := d.ExecCPUAffinity; a != "" && a != ExecOnFirstCPU {
		problem("exec_cpu_affinity", fmt.Errorf("%q is neither empty nor %q", a, ExecOnFirstCPU))
	}
	if d.ShmSize < minShmSize {
		problem("shm_size", fmt.Errorf("%d is less than %d bytes", d.ShmSize, minShmSize))
	}
	if f := d.BlockIOConfigFile; f != "" && !filepath.IsAbs(f) {
		problem("blockio_config_file", fmt.Errorf("%q is not an absolute path", f))
	}
	for _, dir := range d.HooksDirs {
		if !filepath.IsAbs(dir) {
			problem("hooks_dirs", fmt.Errorf("%q is not an absolute path", dir))
		}
	}
}

// Spec returns the defaults of containers whose handler has the base_runtime_spec base, nil for none. Both must be
// valid.
func (d Defaults) Spec(base *specs.Spec) (spec.Defaults, error) {
	limits, err := rlimits(d.Ulimits)
	if err != nil {
		return spec.Defaults{}, err
	}
	out := spec.Defaults{
		Rlimits: limits, Capabilities: d.Capabilities, Env: d.Env, PidsLimit: d.PidsLimit, ReadOnly: d.ReadOnly,
		DeviceOwnership: d.DeviceOwnershipFromSecurityContext, MinGoMaxProcs: d.MinGoMaxProcs,
	}.WithBase(base)
	out.Capabilities, err = spec.Capabilities(out.Capabilities)
	return out, err
}

// ContainerSpec returns Spec with the class of block I/O that the pod chooses for the container.
func (d Defaults) ContainerSpec(
	base *specs.Spec, pod *cri.PodSandboxConfig, c *cri.ContainerConfig,
) (spec.Defaults, error) {
	out, err := d.Spec(base)
	if err != nil {
		return out, err
	}
	class, err := host.BlockIOOf(d.BlockIOConfigFile, pod, c)
	out.BlockIO = cmp.Or(class, out.BlockIO)
	return out, err
}

// ExecCPUs returns the CPUs on which commands run in a container with these limits, "" for all of them.
func (d Defaults) ExecCPUs(r *cri.LinuxContainerResources) string {
	if d.ExecCPUAffinity != ExecOnFirstCPU {
		return ""
	}
	first, _, _ := strings.Cut(r.GetCpusetCpus(), ",")
	first, _, _ = strings.Cut(first, "-")
	return first
}

// BlockIO is host.BlockIO with the configured file.
func (d Defaults) BlockIO(class string) (*specs.LinuxBlockIO, error) {
	return host.BlockIO(d.BlockIOConfigFile, class)
}

// rlimits converts the limits, in the order of their names.
func rlimits(ulimits map[string]string) ([]specs.POSIXRlimit, error) {
	var out []specs.POSIXRlimit
	for _, name := range slices.Sorted(maps.Keys(ulimits)) {
		value := ulimits[name]
		if value == "" {
			continue
		}
		first, second, both := strings.Cut(value, ":")
		if !both {
			second = first
		}
		soft, softErr := limit(first)
		hard, hardErr := limit(second)
		if softErr != nil || hardErr != nil {
			return nil, fmt.Errorf("%s: %q is neither a number, \"unlimited\" nor soft:hard", name, value)
		}
		out = append(out, specs.POSIXRlimit{Type: "RLIMIT_" + strings.ToUpper(name), Soft: soft, Hard: hard})
	}
	return out, spec.CheckRlimits(out)
}

// unlimited is RLIM_INFINITY.
const unlimited = 1<<64 - 1

func limit(s string) (uint64, error) {
	if s == "unlimited" || s == "-1" {
		return unlimited, nil
	}
	return strconv.ParseUint(s, 10, 64)
}
