// Package spec turns a CRI container configuration into the config.json of an OCI runtime.
//
// It is pure: it opens no file and makes no system call. Everything that depends on the machine is in Input, gathered
// by oci/spec/host. The same input gives the same bytes, as the golden tests check. The sandbox engine is its only
// caller.
package spec

import (
	"github.com/moby/profiles/seccomp"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Input is everything that a container's config.json depends on.
type Input struct {
	ID     string
	Pod    *cri.PodSandboxConfig
	Config *cri.ContainerConfig
	Image  v1.ImageConfig
	// Rootfs is the path of the mounted root filesystem.
	Rootfs string
	User   User
	// Mounts are Config.Mounts in the same order, resolved: sources are checked, image volumes mounted.
	Mounts []Mount
	// Devices are the device nodes to create and allow. A privileged container gets those of the host as well, and may
	// use all devices, unless NoHostDevices is set.
	Devices       []Device
	NoHostDevices bool
	// WritableCgroups lets a container in a user namespace make cgroups below its own, on cgroup v2, as KEP-5474 plans for
	// a field of the CRI. Its limits belong to the node's root. They would be its own without a user namespace, also with
	// nsdelegate: a process that makes a cgroup namespace of a cgroup below may write above it.
	WritableCgroups bool
	// Seccomp is the loaded profile of a Localhost request (see SeccompRequest), nil otherwise. It has Docker's format:
	// the OCI's, with conditions on its rules.
	Seccomp *seccomp.Seccomp
	// Labels are the SELinux labels, zero when SELinux is off.
	Labels Labels
	// Namespaces are the paths of the namespaces to join.
	Namespaces Namespaces
	// Files are the pod's own files, bind-mounted unless Config mounts something there.
	Files PodFiles
	// Sandbox is the id of the pod sandbox, for handlers with a kernel of their own.
	Sandbox string
	// Annotations are those that the handler's configuration allows; podd's own take precedence.
	Annotations map[string]string
	// CgroupsPath is the OCI cgroupsPath in the form the cgroup driver wants.
	CgroupsPath string
	// Defaults are the node's, with those of the handler.
	Defaults Defaults
	// Handler and Host are the capabilities of the runtime and of the machine.
	Handler Handler
	Host    Facts
}

// User is the user of the container's process, looked up in the root filesystem.
type User struct {
	UID, GID uint32
	// Groups are the supplementary groups, with supplementalGroupsPolicy applied.
	Groups []uint32
	// Home is the home directory, for $HOME; empty when passwd has no entry.
	Home string
}

// Labels are the SELinux labels of a container: of its process, and of its files.
type Labels struct {
	Process, Mount string
}

// Mount is one resolved entry of ContainerConfig.mounts.
type Mount struct {
	// Config is the entry as sent.
	Config *cri.Mount
	// Source is the host path to bind: Config.HostPath checked, or the image volume's path with its sub path.
	Source string
	// IsDir reports whether Source is a directory.
	IsDir bool
}

// Device is one device node and its cgroup rule.
type Device struct {
	Node   specs.LinuxDevice
	Access string // cgroup access: any of r, w, m
	// Source is the path of the node on the host. Only a root user of the host can make device nodes: in a user namespace
	// they are bind mounts of the host's.
	Source string
}

// Namespaces has for each namespace the path to join, "host" for the node's, or "" for a new private one.
type Namespaces struct {
	Net, IPC, UTS, PID, User string
	// UIDs and GIDs map User when it is a path.
	UIDs, GIDs []specs.LinuxIDMapping
}

// Host is the Namespaces value for sharing the node's namespace.
const Host = "host"

// PodFiles are host paths of files that the pod's containers share; an empty path is not mounted.
type PodFiles struct {
	ResolvConf, Hostname, Hosts, Shm string
}

// Handler describes the features of the chosen runtime.
type Handler struct {
	OCIVersion        string
	RecursiveReadOnly bool
	UserNamespaces    bool
	// OwnKernel is true when the pod's containers share a sandbox with a kernel that is not the host's.
	OwnKernel bool
}

// Facts is what this machine supports, read once at start by oci/spec/host.
type Facts struct {
	// Capabilities is the daemon's bounding set (CAP_...), the most that a container can get.
	Capabilities []string
	// OOMScoreAdjMin is the lowest oom_score_adj that the daemon may set.
	OOMScoreAdjMin int
	// RlimitMax are the highest hard limits that podd may set, by name (RLIMIT_...); no entry means any.
	RlimitMax map[string]uint64
	// CgroupV2 is true on a pure cgroup v2 machine.
	CgroupV2 bool
	// Hugetlb, Swap: the controllers (v1) or files (v2) exist.
	Hugetlb, Swap bool
	// HugepageSizes are the kernel's sizes in cgroup notation ("2MB", "1GB").
	HugepageSizes []string
	// Seccomp, AppArmor and SELinux: the kernel feature is on.
	Seccomp, AppArmor, SELinux bool
	// Devices are all of the host's devices, for privileged containers.
	Devices []Device
	// DefaultAppArmor is the profile of RuntimeDefault, loaded; empty when AppArmor is off.
	DefaultAppArmor string
	// Arch is runtime.GOARCH, and Kernel the version of the running kernel: both choose among the rules of the
	// default seccomp profile.
	Arch   string
	Kernel KernelVersion
	// NoX32: the kernel is known not to run programs of the x32 ABI of amd64.
	NoX32 bool
	// Hostname is the node's name, for $HOSTNAME in pods on the node's network.
	Hostname string
}

// KernelVersion is the first two numbers of a kernel release: 6.18.5-amd64 is {6, 18}.
type KernelVersion struct {
	Major, Minor int
}
