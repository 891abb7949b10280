package server

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/spec"
)

// checkCreateContainer ignores sandbox_config except privileged: podd uses the pod's record. The kubelet computes
// privileged for each request: it is set for an ephemeral container (kubectl debug --profile=sysadmin) in a pod that
// was created without.
func checkCreateContainer(r *cri.CreateContainerRequest) error {
	c := newCheck()
	c.id("pod_sandbox_id", r.GetPodSandboxId())
	c.containerConfig("config", r.GetConfig())
	// LinuxSandboxSecurityContext.privileged: "If a privileged container is to be executed within it, this MUST be true."
	c.that(
		!r.GetConfig().GetLinux().GetSecurityContext().GetPrivileged() ||
			r.GetSandboxConfig().GetLinux().GetSecurityContext().GetPrivileged(),
		"sandbox_config.linux.security_context.privileged", "must be set for a privileged container",
	)
	return c.err()
}

// checkContainerID checks a request that only has a container id.
func checkContainerID(id string) error {
	c := newCheck()
	c.id("container_id", id)
	return c.err()
}

func checkStopContainer(r *cri.StopContainerRequest) error {
	c := newCheck()
	c.id("container_id", r.GetContainerId())
	c.between("timeout", r.GetTimeout(), 0, math.MaxInt64)
	return c.err()
}

func checkUpdateContainer(r *cri.UpdateContainerResourcesRequest) error {
	c := newCheck()
	c.id("container_id", r.GetContainerId())
	c.that(r.GetWindows() == nil, "windows", "is not supported: podd only runs Linux containers")
	c.that(r.GetLinux() != nil, "linux", "must be set")
	c.resources("linux", r.GetLinux())
	c.labels("annotations", r.GetAnnotations())
	return c.err()
}

func checkContainerFilter(f *cri.ContainerFilter) error {
	c := newCheck()
	c.filterID("filter.id", f.GetId())
	c.filterID("filter.pod_sandbox_id", f.GetPodSandboxId())
	if f.GetState() != nil {
		known(c, "filter.state.state", f.GetState().GetState(), cri.ContainerState_name)
	}
	c.labels("filter.label_selector", f.GetLabelSelector())
	return c.err()
}

func (c check) containerConfig(field string, cfg *cri.ContainerConfig) {
	c.that(cfg != nil, field, "must be set")
	c = c.at(field)
	c.that(cfg.GetMetadata() != nil, "metadata", "must be set")
	c.that(cfg.GetMetadata().GetName() != "", "metadata.name", "must not be empty")
	c.label("metadata.name", cfg.GetMetadata().GetName())
	c.imageSpec("image", cfg.GetImage())
	c.process(cfg)
	c.mounts("mounts", cfg.GetMounts())
	c.devices("devices", cfg.GetDevices())
	c.count("CDI_devices", len(cfg.GetCDIDevices()))
	for i, d := range cfg.GetCDIDevices() {
		c.item("CDI_devices", i).word("name", d.GetName(), maxName)
	}
	c.labels("labels", cfg.GetLabels())
	c.labels("annotations", cfg.GetAnnotations())
	if p := cfg.GetLogPath(); p != "" {
		c.beneath("log_path", p)
	}
	known(c, "stop_signal", cfg.GetStopSignal(), cri.Signal_name)
	c.that(cfg.GetWindows() == nil, "windows", "is not supported: podd only runs Linux containers")
	c.resources("linux.resources", cfg.GetLinux().GetResources())
	if sc := cfg.GetLinux().GetSecurityContext(); sc != nil {
		c.containerSecurity("linux.security_context", sc)
	}
}

// process checks the arguments of execve(2) and config.json.
func (c check) process(cfg *cri.ContainerConfig) {
	size := c.words("command", cfg.GetCommand()) + c.words("args", cfg.GetArgs()) + c.environment("envs", cfg.GetEnvs())
	c.arguments("", size)
	if dir := cfg.GetWorkingDir(); dir != "" {
		c.absolute("working_dir", dir)
	}
}

// environment is bounded by bytes, not by entries: Kubernetes sets 7 or more variables for each service in a namespace.
// It returns their size for execve(2).
func (c check) environment(field string, envs []*cri.KeyValue) (size int) {
	for i, e := range envs {
		c := c.item(field, i)
		c.that(e.GetKey() != "", "key", "must not be empty")
		c.that(!strings.Contains(e.GetKey(), "="), "key", "must not contain =")
		c.line("key", e.GetKey(), maxPath)
		// An author of a pod knows it by its name.
		value := spec.EnvValue(e.GetValue())
		c.text(fmt.Sprintf("value of %.100q", e.GetKey()), value, maxArgument-len("=\x00")-len(e.GetKey()))
		size += argumentSize(e.GetKey()) + len("=") + len(value)
	}
	return size
}

// words checks arguments and returns their size for execve(2), which bounds their number.
func (c check) words(field string, list []string) (size int) {
	for i, s := range list {
		c.item(field, i).text("", s, maxArgument-len("\x00"))
		size += argumentSize(s)
	}
	return size
}

// argumentSize is the size of a string for execve(2): with the NUL and the pointer.
func argumentSize(s string) int { return len(s) + len("\x00") + 8 }

// arguments refuses arguments and variables with which no program can be started.
func (c check) arguments(field string, size int) {
	c.that(size <= maxArguments, field,
		"must not have more than "+strconv.Itoa(maxArguments)+" bytes of arguments and environment, see execve(2)")
}

func (c check) mounts(field string, ms []*cri.Mount) {
	c.count(field, len(ms))
	images := 0
	for i, m := range ms {
		if m.GetImage() != nil {
			images++
		}
		c := c.item(field, i)
		c.that(images <= maxImageVolumes, "image", "must not be in more than "+strconv.Itoa(maxImageVolumes)+" mounts")
		c.that(m != nil, "", "must be set")
		c.absolute("container_path", m.GetContainerPath())
		known(c, "propagation", m.GetPropagation(), cri.MountPropagation_name)
		c.mountSource(m)
		if m.GetRecursiveReadOnly() {
			c.that(m.GetReadonly(), "recursive_read_only", "requires readonly")
			c.that(
				m.GetPropagation() == cri.MountPropagation_PROPAGATION_PRIVATE, "recursive_read_only",
				"requires propagation PROPAGATION_PRIVATE",
			)
		}
		c.mappings("uidMappings", m.GetUidMappings())
		c.mappings("gidMappings", m.GetGidMappings())
		c.count("mount_options", len(m.GetMountOptions()))
		for j, o := range m.GetMountOptions() {
			c.item("mount_options", j).word("", o, 64)
			c.item("mount_options", j).that(!strings.ContainsAny(o, ",="), "", "must be one flag without , or =")
		}
	}
}

// mountSource: a mount has either a host path or an image. image_sub_path is ignored for a host path: if a pod has an
// image volume, the kubelet sets it to the subPath of every volume of the pod (kubelet_pods.go, makeMounts).
func (c check) mountSource(m *cri.Mount) {
	if m.GetImage() == nil {
		c.that(m.GetHostPath() != "", "host_path", "must not be empty unless image is set")
		c.absolute("host_path", m.GetHostPath())
		return
	}
	c.that(m.GetHostPath() == "", "host_path", "must be empty when image is set")
	c.that(m.GetReadonly(), "readonly", "must be set: volumes of images are read-only")
	c.imageSpec("image", m.GetImage())
	if sub := m.GetImageSubPath(); sub != "" {
		c.beneath("image_sub_path", sub)
	}
}

func (c check) devices(field string, ds []*cri.Device) {
	c.count(field, len(ds))
	for i, d := range ds {
		c := c.item(field, i)
		c.absolute("host_path", d.GetHostPath())
		if d.GetContainerPath() != "" { // else it is the host's
			c.absolute("container_path", d.GetContainerPath())
		}
		c.that(
			consistsOf(d.GetPermissions(), "rwm") && len(d.GetPermissions()) <= 3, "permissions",
			"must consist of r, w and m",
		)
	}
}

func (c check) containerSecurity(field string, sc *cri.LinuxContainerSecurityContext) {
	c = c.at(field)
	c.capabilities("capabilities", sc.GetCapabilities())
	c.containerNamespaces("namespace_options", sc.GetNamespaceOptions())
	c.selinux("selinux_options", sc.GetSelinuxOptions())
	c.user("run_as_user", sc.GetRunAsUser())
	c.line("run_as_username", sc.GetRunAsUsername(), maxName)
	c.that(
		sc.GetRunAsUser() == nil || sc.GetRunAsUsername() == "", "run_as_username",
		"must be empty when run_as_user is set",
	)
	c.user("run_as_group", sc.GetRunAsGroup())
	c.that(
		sc.GetRunAsGroup() == nil || sc.GetRunAsUser() != nil || sc.GetRunAsUsername() != "", "run_as_group",
		"requires run_as_user or run_as_username",
	)
	c.groups("supplemental_groups", sc.GetSupplementalGroups())
	known(c, "supplemental_groups_policy", sc.GetSupplementalGroupsPolicy(), cri.SupplementalGroupsPolicy_name)
	c.paths("masked_paths", sc.GetMaskedPaths())
	c.paths("readonly_paths", sc.GetReadonlyPaths())
	c.seccomp("seccomp", sc.GetSeccomp())
	c.apparmor("apparmor", sc.GetApparmor())
	//lint:ignore SA1019 old clients set it
	c.text("apparmor_profile", sc.GetApparmorProfile(), maxPath)
	//lint:ignore SA1019 old clients set it
	c.text("seccomp_profile_path", sc.GetSeccompProfilePath(), maxPath)
}

func (c check) paths(field string, ps []string) {
	c.count(field, len(ps))
	for i, p := range ps {
		c.item(field, i).absolute("", p)
	}
}
