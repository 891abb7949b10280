package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/sandbox/handler"
	"github.com/podd-project/podd/sandbox/namespaces"
	"github.com/podd-project/podd/sandbox/record"
)

// Node has the facts of the node that do not change while podd runs.
type Node struct {
	// Layout has the directories. Root and Run are absolute paths.
	record.Layout
	// BootID is the kernel's boot id: a record with another one has no live processes.
	BootID string
	// PauseRootfs is the root filesystem of infra containers, see oci/pause.
	PauseRootfs string
	// SystemdCgroup is true for the systemd cgroup driver, false for cgroupfs.
	SystemdCgroup bool
}

// Config has the operator's keys of the engine. Reconfigure can replace them.
type Config struct {
	handler.Settings
	// SeccompRoot is the directory of relative Localhost seccomp profiles.
	SeccompRoot string `toml:"seccomp_profile_root" comment:"Directory of Localhost seccomp profiles with a relative path."`
	// CDIDirs are the directories of Container Device Interface specifications.
	CDIDirs []string `toml:"cdi_spec_dirs" comment:"Directories of CDI device specifications. Later directories override earlier ones."`
	// CreateMissingHostPaths makes directories of host paths that do not exist.
	CreateMissingHostPaths bool `toml:"create_missing_host_paths" comment:"Create the host path of a mount as a directory (0755, root) if it does not exist, as hostPath volumes without a type expect. false: refuse the container."`
	// DefaultSysctls are set in the namespaces of each pod, unless the pod sets them.
	DefaultSysctls map[string]string `toml:"default_sysctls" comment:"Sysctls of pods that do not set them, in the namespaces that a pod does not share with the node. The defaults let processes without privileges send ICMP echo requests and listen on ports below 1024. Empty value: the kernel's default."`
	// CgroupPrefix starts the names of the cgroups of containers.
	CgroupPrefix string `toml:"cgroup_prefix" comment:"Start of the names of the containers' cgroups: PREFIX-<id>, PREFIX-<id>.scope under systemd. Monitoring and security tools take cgroups for containers if they know the prefix; crio is the only one that the kubelet's cAdvisor and Falco know with both cgroup drivers. Existing containers keep theirs."`
	// CheckpointKeys are files of public keys whose signatures of checkpoints count like this node's seal.
	CheckpointKeys []string `toml:"checkpoint_keys" comment:"Files of public keys (PEM, Ed25519). A checkpoint of another node is restored if one of these keys has signed it: see podd checkpoint sign. Read at every restore."`
	// RestoreForeign accepts checkpoints without this node's seal.
	RestoreForeign bool `toml:"restore_foreign_checkpoints" comment:"Restore checkpoints of gVisor that another node has made, or that were changed. They are read by gVisor, in the sandbox of the new pod; podd compares only what their manifest says."`
	handler.Defaults
	// CreateTimeout bounds the creation of a pod or container, which is detached from its caller.
	CreateTimeout time.Duration `toml:"create_timeout" comment:"Limit for creating a pod or container, which continues if the caller gives up. A start of a container has as long, 1 minute at most, and one attempt to tear down a pod or container 2 minutes at most."`
	// CheckpointTimeout bounds one checkpoint of a container, most of which it is frozen, unless the request has a limit.
	CheckpointTimeout time.Duration `toml:"checkpoint_timeout" comment:"Limit for CheckpointContainer, during which the container is frozen. A request may set another one."`
	// KillTimeout is how long a container may outlive SIGKILL before StopContainer fails.
	KillTimeout time.Duration `toml:"kill_timeout" comment:"How long a container may outlive SIGKILL before StopContainer fails."`
	// StatsInterval is the time between two background measurements of resource usage.
	StatsInterval time.Duration `toml:"stats_interval" comment:"Interval of resource usage measurements of each container, used to calculate rates. Requests for statistics measure in addition."`
}

const (
	// maxStart bounds one start of a container, and maxUndo one teardown; a shorter CreateTimeout bounds both.
	maxStart = time.Minute
	maxUndo  = 2 * time.Minute
	// unclaimedTime is how long a pod or container is kept whose id no caller has received: the caller may retry.
	unclaimedTime = 10 * time.Minute
	// slowOperation is the age at which an operation in progress is logged, with its stage.
	slowOperation = 10 * time.Second
)

func (c *Config) startTimeout() time.Duration { return min(c.CreateTimeout, maxStart) }

func (c *Config) undoTimeout() time.Duration { return min(c.CreateTimeout, maxUndo) }

// DefaultConfig returns the values for everything that has a sensible one.
func DefaultConfig() Config {
	return Config{
		Settings:               handler.Settings{DefaultHandler: "runc"},
		SeccompRoot:            "/var/lib/kubelet/seccomp",
		CDIDirs:                []string{"/etc/cdi", "/var/run/cdi"},
		CreateMissingHostPaths: true,
		DefaultSysctls: map[string]string{
			"net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ping_group_range": "0 2147483647",
		},
		Defaults:          handler.StandardDefaults(),
		CgroupPrefix:      "crio",
		CreateTimeout:     4 * time.Minute,
		CheckpointTimeout: 2 * time.Minute,
		KillTimeout:       30 * time.Second,
		StatsInterval:     10 * time.Second,
	}
}

// Validate reports each wrong key. It opens no file but that of the time zone.
func (c Config) Validate(problem func(key string, err error)) {
	if !filepath.IsAbs(c.SeccompRoot) {
		problem("seccomp_profile_root", fmt.Errorf("%q is not an absolute path", c.SeccompRoot))
	}
	for _, path := range c.CheckpointKeys {
		if !filepath.IsAbs(path) {
			problem("checkpoint_keys", fmt.Errorf("%q is not an absolute path", path))
		}
	}
	for _, d := range []struct {
		key string
		d   time.Duration
	}{
		{"create_timeout", c.CreateTimeout}, {"checkpoint_timeout", c.CheckpointTimeout},
		{"kill_timeout", c.KillTimeout}, {"stats_interval", c.StatsInterval},
	} {
		if d.d <= 0 {
			problem(d.key, fmt.Errorf("%v is not a positive duration", d.d))
		}
	}
	if c.DefaultHandler == "" {
		problem("default_handler", errors.New("is empty, want the name of a runtime handler"))
	}
	if err := spec.CheckCgroupPrefix(c.CgroupPrefix); err != nil {
		problem("cgroup_prefix", err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.DefaultSysctls)) {
		if err := namespaces.CheckDefaultSysctl(name, c.DefaultSysctls[name]); err != nil {
			problem("default_sysctls."+strconv.Quote(name), err)
		}
	}
	c.Defaults.Validate(problem)
}
