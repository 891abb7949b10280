package spec

import (
	"maps"
	"math"
	"slices"

	"github.com/moby/profiles/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PauseInput is everything that the config.json of a pod's infra container depends on.
type PauseInput struct {
	ID  string
	Pod *cri.PodSandboxConfig
	// Rootfs holds only podd's static /pause.
	Rootfs string
	// Seccomp is the profile of a Localhost request (see SeccompRequest), loaded; nil otherwise.
	Seccomp *seccomp.Seccomp
	// Labels are the SELinux labels, zero when SELinux is off.
	Labels Labels
	// Namespaces are the pod's. The PID namespace is ignored: the infra container is the first process of a new one.
	Namespaces  Namespaces
	CgroupsPath string
	// Shm is the pod's shared memory on the host. Containers in a sandbox can only share what its infra container has.
	Shm string
	// Sysctls are those of the pod, defaults included. They are for runtimes with their own kernel; otherwise they are
	// already set in the pod's namespaces.
	Sysctls map[string]string
	// Rlimits are as in Defaults.
	Rlimits []specs.POSIXRlimit
	// Annotations are as in Input.
	Annotations map[string]string
	Handler     Handler
	Host        Facts
}

// The infra container's oom_score_adj and CPU weight, as the kubelet expects of every runtime
// (kubernetes/pkg/kubelet/qos): the kernel must kill it last, and it needs no CPU time.
const (
	pauseOOMScoreAdj = -998
	pauseShares      = 2
)

// pauseUser runs /pause if the pod's security context names no user.
const pauseUser = 65535

// Pause returns the config.json of the infra container of a pod that shares its PID namespace: an unprivileged process
// that reaps zombies. The pod's security context applies to it. Warnings and errors are as for Container.
func Pause(in PauseInput) (*specs.Spec, []string, error) {
	sandbox := in.Pod.GetLinux().GetSecurityContext()
	user, err := sandboxUser(sandbox, in.Namespaces)
	if err != nil {
		return nil, nil, err
	}
	ns := in.Namespaces
	ns.PID = ""
	b, err := newBuilder(Input{
		ID: in.ID, Sandbox: in.ID, Annotations: in.Annotations, Pod: in.Pod,
		Config: pauseConfig(sandbox, in.Handler, in.Host), Rootfs: in.Rootfs, User: user, Seccomp: in.Seccomp,
		Labels: in.Labels, Namespaces: ns, Files: PodFiles{Shm: in.Shm}, CgroupsPath: in.CgroupsPath, Handler: in.Handler,
		Host: in.Host, Defaults: Defaults{Rlimits: in.Rlimits},
	})
	if err != nil {
		return nil, nil, err
	}
	return b.run([]step{
		{"command", (*builder).args},
		{"working directory", (*builder).cwd},
		{"user", (*builder).user},
		{"capabilities", (*builder).capabilities},
		{"seccomp", (*builder).seccomp},
		{"AppArmor", (*builder).apparmor},
		{"SELinux", (*builder).selinux},
		{"namespaces", (*builder).namespaces},
		{"mounts", (*builder).pauseMounts},
		{"masked paths", (*builder).maskedPaths},
		{"resources", (*builder).resources},
		{"node's defaults", (*builder).defaults},
		{"cgroup", (*builder).cgroup},
		{"sysctls", func(b *builder) error {
			if in.Handler.OwnKernel {
				b.spec.Linux.Sysctl = maps.Clone(in.Sysctls)
			}
			return nil
		}},
		{"annotations", func(b *builder) error { return b.annotate("infra") }},
	})
}

// pauseConfig returns the configuration of the infra container. Its seccomp profile is the default one if the pod names
// none, which suffices for podd's own program.
//
// If the runtime has its own kernel, the infra container's cgroup holds all containers of the pod: the minimal weight
// must not apply to it.
func pauseConfig(sandbox *cri.LinuxSandboxSecurityContext, h Handler, f Facts) *cri.ContainerConfig {
	profile := sandbox.GetSeccomp()
	//lint:ignore SA1019 old kubelets set it
	deprecated := sandbox.GetSeccompProfilePath()
	if profile == nil && deprecated == "" && f.Seccomp {
		profile = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}
	}
	shares := int64(pauseShares)
	if h.OwnKernel {
		shares = 0 // not set
	}
	return &cri.ContainerConfig{
		Command: []string{"/pause"},
		Linux: &cri.LinuxContainerConfig{
			Resources: &cri.LinuxContainerResources{CpuShares: shares, OomScoreAdj: pauseOOMScoreAdj},
			SecurityContext: &cri.LinuxContainerSecurityContext{
				Capabilities:   &cri.Capability{DropCapabilities: []string{all}},
				ReadonlyRootfs: true,
				NoNewPrivs:     true,
				Seccomp:        profile,
				//lint:ignore SA1019 old kubelets set it
				SeccompProfilePath: deprecated,
				Apparmor:           sandbox.GetApparmor(),
				MaskedPaths:        pauseMasked(),
			},
		},
	}
}

// pauseMasked returns the paths of /proc that show the state of the node or act on it.
func pauseMasked() []string {
	return []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/sysrq-trigger", "/proc/timer_list", "/proc/timer_stats",
	}
}

func (b *builder) pauseMounts() error {
	b.spec.Mounts = []specs.Mount{
		b.proc(),
		{
			Destination: "/dev", Type: "tmpfs", Source: "tmpfs",
			Options: []string{"nosuid", "noexec", "strictatime", "mode=755", "size=64k"},
		},
	}
	if b.in.Handler.OwnKernel && b.in.Files.Shm != "" {
		b.spec.Mounts = append(b.spec.Mounts, specs.Mount{
			Destination: "/dev/shm", Type: "bind", Source: b.in.Files.Shm,
			Options: []string{"rbind", "ro", "nosuid", "nodev", "noexec"},
		})
	}
	return nil
}

// sandboxUser returns the user of the infra container. CRI: "run_as_group should only be specified when run_as_user is
// specified; otherwise, the runtime MUST error."
func sandboxUser(sc *cri.LinuxSandboxSecurityContext, ns Namespaces) (User, error) {
	u := User{UID: pauseUser, GID: pauseUser}
	if joined(ns.User) && (!mapped(pauseUser, ns.UIDs) || !mapped(pauseUser, ns.GIDs)) {
		u = User{}
	}
	if sc.GetRunAsGroup() != nil && sc.GetRunAsUser() == nil {
		return User{}, invalid("the pod's run_as_group needs a run_as_user")
	}
	if sc.GetRunAsUser() != nil {
		u.UID, u.GID = 0, 0
	}
	for _, id := range []struct {
		to   *uint32
		from *cri.Int64Value
	}{{&u.UID, sc.GetRunAsUser()}, {&u.GID, sc.GetRunAsGroup()}} {
		if id.from == nil {
			continue
		}
		v, err := ID(id.from.GetValue())
		if err != nil {
			return User{}, err
		}
		*id.to = v
	}
	for _, g := range sc.GetSupplementalGroups() {
		v, err := ID(g)
		if err != nil {
			return User{}, err
		}
		if !slices.Contains(u.Groups, v) {
			u.Groups = append(u.Groups, v)
		}
	}
	return u, nil
}

// ID narrows a user or group id of the CRI to the kernel's. The highest value is not an id: it means "no change" to
// setuid(2).
func ID(id int64) (uint32, error) {
	if id < 0 || id >= math.MaxUint32 {
		return 0, invalid("%d is not a user or group id", id)
	}
	return uint32(id), nil
}
