package server

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type containerCase struct {
	change func(*cri.ContainerConfig)
	field  string
}

// manyEnvs returns n variables with names and values of size bytes together.
func manyEnvs(n, size int) (envs []*cri.KeyValue) {
	for i := range n {
		key := fmt.Sprintf("V%04d", i)
		envs = append(envs, &cri.KeyValue{Key: key, Value: bytes.Repeat([]byte("x"), max(size-len(key), 0))})
	}
	return envs
}

// manyVolumes returns n mounts of images.
func manyVolumes(n int) (mounts []*cri.Mount) {
	for i := range n {
		mounts = append(mounts, &cri.Mount{
			ContainerPath: fmt.Sprint("/", i), Image: &cri.ImageSpec{Image: imageTag}, Readonly: true,
		})
	}
	return mounts
}

// manyLimits returns n limits of 4 KiB each.
func manyLimits(n int) map[string]string {
	limits := map[string]string{}
	for i := range n {
		limits[fmt.Sprint("memory.", i)] = strings.Repeat("x", 4095)
	}
	return limits
}

func runContainerCases(t *testing.T, cases map[string]containerCase) {
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := goodContainer()
			tt.change(cfg)
			wantProblem(t, checkCreateContainer(&cri.CreateContainerRequest{PodSandboxId: podID, Config: cfg}), tt.field)
		})
	}
}

// TestPrivilegedBySandboxConfig: the request's sandbox_config decides, as the kubelet sends it at present.
func TestPrivilegedBySandboxConfig(t *testing.T) {
	pod := func(privileged bool) *cri.PodSandboxConfig {
		return &cri.PodSandboxConfig{
			Linux: &cri.LinuxPodSandboxConfig{
				SecurityContext: &cri.LinuxSandboxSecurityContext{Privileged: privileged},
			},
		}
	}
	const field = "sandbox_config.linux.security_context.privileged"
	for name, tt := range map[string]struct {
		privileged bool
		pod        *cri.PodSandboxConfig
		field      string
	}{
		"both":                 {true, pod(true), ""},
		"only the container":   {true, pod(false), field},
		"no sandbox_config":    {true, nil, field},
		"only the pod":         {false, pod(true), ""},
		"neither, no pod":      {false, nil, ""},
		"neither, pod without": {false, pod(false), ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := goodContainer()
			cfg.Linux.SecurityContext.Privileged = tt.privileged
			r := &cri.CreateContainerRequest{PodSandboxId: podID, Config: cfg, SandboxConfig: tt.pod}
			wantProblem(t, checkCreateContainer(r), tt.field)
		})
	}
}

func TestCreateContainerValidation(t *testing.T) {
	type ctr = *cri.ContainerConfig
	runContainerCases(t, map[string]containerCase{
		"good":                     {func(ctr) {}, ""},
		"no metadata":              {func(c ctr) { c.Metadata = nil }, "config.metadata"},
		"no name":                  {func(c ctr) { c.Metadata.Name = "" }, "config.metadata.name"},
		"path in the name":         {func(c ctr) { c.Metadata.Name = "a/b" }, "config.metadata.name"},
		"no image":                 {func(c ctr) { c.Image = nil }, "config.image"},
		"no image name":            {func(c ctr) { c.Image.Image = "" }, "config.image.image"},
		"long image name":          {func(c ctr) { c.Image.Image = strings.Repeat("a", 1025) }, "config.image.image"},
		"space in the image name":  {func(c ctr) { c.Image.Image = "a b" }, "config.image.image"},
		"image annotations":        {func(c ctr) { c.Image.Annotations[""] = "x" }, "config.image.annotations"},
		"no command at all":        {func(c ctr) { c.Command, c.Args = nil, nil }, ""},
		"NUL in the command":       {func(c ctr) { c.Command[0] = "sh\x00" }, "config.command[0]"},
		"bad UTF-8 in an argument": {func(c ctr) { c.Args[1] = "\xff" }, "config.args[1]"},
		"huge argument":            {func(c ctr) { c.Args[1] = strings.Repeat("a", 1<<20+1) }, "config.args[1]"},
		"5,000 arguments":          {func(c ctr) { c.Args = make([]string, 5000) }, ""},
		"250,000 arguments":        {func(c ctr) { c.Args = make([]string, 250_000) }, "config"},
		"relative working dir":     {func(c ctr) { c.WorkingDir = "srv" }, "config.working_dir"},
		"no working dir":           {func(c ctr) { c.WorkingDir = "" }, ""},
		"no env key":               {func(c ctr) { c.Envs[0].Key = "" }, "config.envs[0].key"},
		"= in an env key":          {func(c ctr) { c.Envs[0].Key = "A=B" }, "config.envs[0].key"},
		"newline in an env key":    {func(c ctr) { c.Envs[1].Key = "A\nB" }, "config.envs[1].key"},
		"newline in an env value":  {func(c ctr) { c.Envs[1].Value = []byte("a\nb") }, ""},
		"env value not UTF-8":      {func(c ctr) { c.Envs[1].Value = []byte("a\xffb") }, ""},
		"too long as UTF-8": {func(c ctr) { c.Envs[1].Value = bytes.Repeat([]byte{0xff}, maxArgument/2) },
			`config.envs[1].value of "MULTI"`},
		"NUL in an env value":    {func(c ctr) { c.Envs[1].Value = []byte("a\x00b") }, `config.envs[1].value of "MULTI"`},
		"5,000 envs":             {func(c ctr) { c.Envs = manyEnvs(5000, 60) }, ""},
		"envs of 2 MiB":          {func(c ctr) { c.Envs = manyEnvs(15, 128<<10-2) }, ""},
		"envs above 2 MiB":       {func(c ctr) { c.Envs = manyEnvs(16, 128<<10-2) }, "config"},
		"an env of 128 KiB":      {func(c ctr) { c.Envs = manyEnvs(1, 128<<10-1) }, `config.envs[0].value of "V0000"`},
		"an argument of 128 KiB": {func(c ctr) { c.Args = []string{strings.Repeat("x", 128<<10)} }, "config.args[0]"},
		"arguments above 2 MiB": {
			func(c ctr) { c.Args = slices.Repeat([]string{strings.Repeat("x", 128<<10-1)}, 16) }, "config",
		},
		"65 image volumes":          {func(c ctr) { c.Mounts = manyVolumes(65) }, "config.mounts[64].image"},
		"64 image volumes":          {func(c ctr) { c.Mounts = manyVolumes(64) }, ""},
		"large resources":           {func(c ctr) { c.Linux.Resources.Unified = manyLimits(20) }, "config.linux.resources"},
		"null env":                  {func(c ctr) { c.Envs[0] = nil }, "config.envs[0].key"},
		"empty env value":           {func(c ctr) { c.Envs[0].Value = nil }, ""},
		"absolute log path":         {func(c ctr) { c.LogPath = "/etc/passwd" }, "config.log_path"},
		"log path leads away":       {func(c ctr) { c.LogPath = "main/../../../etc/passwd" }, "config.log_path"},
		"NUL in the log path":       {func(c ctr) { c.LogPath = "a\x00" }, "config.log_path"},
		"dots in the log path":      {func(c ctr) { c.LogPath = "a../..b" }, ""},
		"no log path":               {func(c ctr) { c.LogPath = "" }, ""},
		"unknown signal":            {func(c ctr) { c.StopSignal = 66 }, "config.stop_signal"},
		"last signal":               {func(c ctr) { c.StopSignal = cri.Signal_SIGNAL_SIGRTMAX }, ""},
		"windows":                   {func(c ctr) { c.Windows = &cri.WindowsContainerConfig{} }, "config.windows"},
		"no linux":                  {func(c ctr) { c.Linux = nil }, ""},
		"no security context":       {func(c ctr) { c.Linux.SecurityContext = nil }, ""},
		"NUL in an annotation":      {func(c ctr) { c.Annotations["a"] = "\x00" }, "config.annotations"},
		"device at the host's path": {func(c ctr) { c.Devices[0].ContainerPath = "" }, ""},
		"empty CDI device":          {func(c ctr) { c.CDIDevices[0].Name = "" }, "config.CDI_devices[0].name"},
		"no device path":            {func(c ctr) { c.Devices[0].HostPath = "" }, "config.devices[0].host_path"},
		"relative device": {
			func(c ctr) { c.Devices[0].ContainerPath = "null" }, "config.devices[0].container_path",
		},
		"odd permissions":  {func(c ctr) { c.Devices[0].Permissions = "rx" }, "config.devices[0].permissions"},
		"many permissions": {func(c ctr) { c.Devices[0].Permissions = "rrrr" }, "config.devices[0].permissions"},
		"no permissions":   {func(c ctr) { c.Devices[0].Permissions = "" }, ""},
	})
	wantProblem(t, checkCreateContainer(nil), "pod_sandbox_id")
	wantProblem(t, checkCreateContainer(&cri.CreateContainerRequest{PodSandboxId: podID}), "config")
}

func TestMountValidation(t *testing.T) {
	at := func(i int, change func(*cri.Mount), field string) containerCase {
		return containerCase{func(c *cri.ContainerConfig) { change(c.Mounts[i]) }, field}
	}
	type mount = *cri.Mount
	runContainerCases(t, map[string]containerCase{
		"null":                 {func(c *cri.ContainerConfig) { c.Mounts[0] = nil }, "config.mounts[0]"},
		"no destination":       at(0, func(m mount) { m.ContainerPath = "" }, "config.mounts[0].container_path"),
		"relative destination": at(0, func(m mount) { m.ContainerPath = "data" }, "config.mounts[0].container_path"),
		"no source":            at(0, func(m mount) { m.HostPath = "" }, "config.mounts[0].host_path"),
		"relative source":      at(0, func(m mount) { m.HostPath = "x" }, "config.mounts[0].host_path"),
		"both sources":         at(2, func(m mount) { m.HostPath = "/x" }, "config.mounts[2].host_path"),
		"sub path of no image": at(0, func(m mount) { m.ImageSubPath = "etc" }, ""), // the kubelet sends it
		"sub path leads away": at(
			2, func(m mount) { m.ImageSubPath = "a/../../b" }, "config.mounts[2].image_sub_path",
		),
		"absolute sub path":   at(2, func(m mount) { m.ImageSubPath = "/etc" }, "config.mounts[2].image_sub_path"),
		"writable image":      at(2, func(m mount) { m.Readonly = false }, "config.mounts[2].readonly"),
		"no sub path":         at(2, func(m mount) { m.ImageSubPath = "" }, ""),
		"image without name":  at(2, func(m mount) { m.Image = &cri.ImageSpec{} }, "config.mounts[2].image.image"),
		"unknown propagation": at(0, func(m mount) { m.Propagation = 3 }, "config.mounts[0].propagation"),
		"rro but not ro":      at(0, func(m mount) { m.Readonly = false }, "config.mounts[0].recursive_read_only"),
		"rro propagated": at(
			0, func(m mount) { m.Propagation = cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER },
			"config.mounts[0].recursive_read_only",
		),
		"empty uid mapping": at(
			0, func(m mount) { m.UidMappings[0].Length = 0 }, "config.mounts[0].uidMappings[0].length",
		),
		"large gid mapping": at(
			0, func(m mount) { m.GidMappings = []*cri.IDMapping{{HostId: 1, Length: 1<<32 - 1}} },
			"config.mounts[0].gidMappings[0].host_id",
		),
		"mapping without root is ok": at(
			0, func(m mount) { m.UidMappings = []*cri.IDMapping{{ContainerId: 5, HostId: 1, Length: 1}} }, "",
		),
		"several options in one": at(
			1, func(m mount) { m.MountOptions = []string{"noexec,suid"} }, "config.mounts[1].mount_options[0]",
		),
		"option with a value": at(
			1, func(m mount) { m.MountOptions = []string{"noexec", "upperdir=/"} },
			"config.mounts[1].mount_options[1]",
		),
		"empty option": at(
			1, func(m mount) { m.MountOptions = []string{""} }, "config.mounts[1].mount_options[0]",
		),
		"too many": {func(c *cri.ContainerConfig) { c.Mounts = make([]*cri.Mount, 4097) }, "config.mounts"},
	})
}

func TestContainerSecurityValidation(t *testing.T) {
	type security = *cri.LinuxContainerSecurityContext
	at := func(change func(security), field string) containerCase {
		if field != "" {
			field = "config.linux.security_context." + field
		}
		return containerCase{func(c *cri.ContainerConfig) { change(c.Linux.SecurityContext) }, field}
	}
	mode := func(n *cri.NamespaceOption) func(security) { return func(s security) { s.NamespaceOptions = n } }
	runContainerCases(t, map[string]containerCase{
		"no namespaces": at(mode(nil), ""),
		"target without id": at(
			mode(&cri.NamespaceOption{Pid: cri.NamespaceMode_TARGET}), "namespace_options.target_id",
		),
		"id without target": at(
			mode(&cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER, TargetId: "a"}),
			"namespace_options.target_id",
		),
		"target with a path": at(
			mode(&cri.NamespaceOption{Pid: cri.NamespaceMode_TARGET, TargetId: "../a"}),
			"namespace_options.target_id",
		),
		"ipc of target": at(
			mode(&cri.NamespaceOption{Ipc: cri.NamespaceMode_TARGET, TargetId: "a"}), "namespace_options.ipc",
		),
		"user and name":          at(func(s security) { s.RunAsUsername = "root" }, "run_as_username"),
		"name":                   at(func(s security) { s.RunAsUser, s.RunAsUsername = nil, "www" }, ""),
		"group without user":     at(func(s security) { s.RunAsUser = nil }, "run_as_group"),
		"group with a name":      at(func(s security) { s.RunAsUser, s.RunAsUsername = nil, "www" }, ""),
		"user that wraps":        at(func(s security) { s.RunAsUser.Value = 1 << 32 }, "run_as_user"),
		"negative user":          at(func(s security) { s.RunAsUser.Value = -1 }, "run_as_user"),
		"negative group":         at(func(s security) { s.RunAsGroup.Value = -1 }, "run_as_group"),
		"line in the name":       at(func(s security) { s.RunAsUser, s.RunAsUsername = nil, "a\nb" }, "run_as_username"),
		"relative masked path":   at(func(s security) { s.MaskedPaths = []string{"/a", "proc"} }, "masked_paths[1]"),
		"relative readonly path": at(func(s security) { s.ReadonlyPaths = []string{""} }, "readonly_paths[0]"),
		"empty capability": at(
			func(s security) { s.Capabilities.AddCapabilities = []string{""} }, "capabilities.add_capabilities[0]",
		),
		"odd capability": at(
			func(s security) { s.Capabilities.DropCapabilities = []string{"NET ADMIN"} },
			"capabilities.drop_capabilities[0]",
		),
		"long capability": at(
			func(s security) { s.Capabilities.AddAmbientCapabilities = []string{strings.Repeat("A", 65)} },
			"capabilities.add_ambient_capabilities[0]",
		),
		"unknown policy":      at(func(s security) { s.SupplementalGroupsPolicy = -1 }, "supplemental_groups_policy"),
		"unknown seccomp":     at(func(s security) { s.Seccomp.ProfileType = 3 }, "seccomp.profile_type"),
		"apparmor with a ref": at(func(s security) { s.Apparmor.LocalhostRef = "x" }, "apparmor.localhost_ref"),
		"no profiles":         at(func(s security) { s.Seccomp, s.Apparmor = nil, nil }, ""),
	})
}

func TestResourceValidation(t *testing.T) {
	type resources = *cri.LinuxContainerResources
	cases := map[string]struct {
		change func(resources)
		field  string
	}{
		"good":             {func(resources) {}, ""},
		"short period":     {func(r resources) { r.CpuPeriod = 999 }, "cpu_period"},
		"long period":      {func(r resources) { r.CpuPeriod = 1000001 }, "cpu_period"},
		"no period":        {func(r resources) { r.CpuPeriod = 0 }, ""},
		"negative period":  {func(r resources) { r.CpuPeriod = -1 }, "cpu_period"},
		"negative quota":   {func(r resources) { r.CpuQuota = -2 }, "cpu_quota"},
		"negative shares":  {func(r resources) { r.CpuShares = -1 }, "cpu_shares"},
		"negative memory":  {func(r resources) { r.MemoryLimitInBytes = -2 }, "memory_limit_in_bytes"},
		"unlimited memory": {func(r resources) { r.MemoryLimitInBytes = -1 }, ""},
		"negative swap":    {func(r resources) { r.MemorySwapLimitInBytes = -2 }, "memory_swap_limit_in_bytes"},
		"low oom score":    {func(r resources) { r.OomScoreAdj = -1001 }, "oom_score_adj"},
		"high oom score":   {func(r resources) { r.OomScoreAdj = 1001 }, "oom_score_adj"},
		"words for cpus":   {func(r resources) { r.CpusetCpus = "all" }, "cpuset_cpus"},
		"line in mems":     {func(r resources) { r.CpusetMems = "0\n1" }, "cpuset_mems"},
		"odd page size":    {func(r resources) { r.HugepageLimits[0].PageSize = "2M" }, "hugepage_limits[0].page_size"},
		"page size with a path": {
			func(r resources) { r.HugepageLimits[0].PageSize = "../2MB" }, "hugepage_limits[0].page_size",
		},
		"page size of nothing":   {func(r resources) { r.HugepageLimits[0].PageSize = "B" }, "hugepage_limits[0].page_size"},
		"page size without unit": {func(r resources) { r.HugepageLimits[0].PageSize = "MB" }, "hugepage_limits[0].page_size"},
		"page size of 0": {
			func(r resources) { r.HugepageLimits[0].PageSize = "0MB" }, "hugepage_limits[0].page_size",
		},
		"large pages":          {func(r resources) { r.HugepageLimits[0].PageSize = "16GB" }, ""},
		"null hugepages":       {func(r resources) { r.HugepageLimits[0] = nil }, "hugepage_limits[0].page_size"},
		"unified leads away":   {func(r resources) { r.Unified = map[string]string{"../memory.max": "1"} }, "unified"},
		"unified is ..":        {func(r resources) { r.Unified = map[string]string{"..": "1"} }, "unified"},
		"unified without name": {func(r resources) { r.Unified = map[string]string{"": "1"} }, "unified"},
		"NUL in unified":       {func(r resources) { r.Unified = map[string]string{"memory.max": "\x00"} }, "unified"},
		"unified of io": {
			func(r resources) { r.Unified = map[string]string{"io.max": "8:0 rbps=1\n8:16 rbps=2"} }, "",
		},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			r := goodContainer().GetLinux().GetResources()
			tt.change(r)
			field := tt.field
			if field != "" {
				field = "linux." + field
			}
			wantProblem(t, checkUpdateContainer(&cri.UpdateContainerResourcesRequest{ContainerId: runningID, Linux: r}), field)
		})
	}
	wantProblem(t, checkUpdateContainer(&cri.UpdateContainerResourcesRequest{ContainerId: runningID}), "linux")
	wantProblem(t, checkUpdateContainer(
		&cri.UpdateContainerResourcesRequest{ContainerId: runningID, Windows: &cri.WindowsContainerResources{}},
	), "windows")
	wantProblem(t, checkUpdateContainer(&cri.UpdateContainerResourcesRequest{
		ContainerId: runningID, Linux: &cri.LinuxContainerResources{}, Annotations: map[string]string{"": "x"},
	}), "annotations")
}

func TestIDValidation(t *testing.T) {
	for id, ok := range map[string]bool{
		runningID: true, "c": true, "no-such_id.1": true, "3fa85f64-5717-4562-b3fc-2c963f66afa6": true,
		"": false, "a/b": false, `a\b`: false, "a b": false, "a\x00": false, "a\n": false, "\xff": false,
		strings.Repeat("a", 129): false,
	} {
		field := "container_id"
		if ok {
			field = ""
		}
		wantProblem(t, checkContainerID(id), field)
		if field != "" {
			field = "pod_sandbox_id"
		}
		wantProblem(t, checkPodID(id), field)
	}
}

func TestPullValidation(t *testing.T) {
	type pull = *cri.PullImageRequest
	for name, tt := range map[string]struct {
		change func(pull)
		field  string
	}{
		"good":               {func(pull) {}, ""},
		"no image":           {func(r pull) { r.Image = nil }, "image"},
		"no name":            {func(r pull) { r.Image.Image = "" }, "image.image"},
		"long name":          {func(r pull) { r.Image.Image = strings.Repeat("a", 1025) }, "image.image"},
		"control in handler": {func(r pull) { r.Image.RuntimeHandler = "\x1b[0m" }, "image.runtime_handler"},
		"no auth":            {func(r pull) { r.Auth = nil }, ""},
		"NUL in user":        {func(r pull) { r.Auth.Username = "\x00" }, "auth.username"},
		"huge password":      {func(r pull) { r.Auth.Password = strings.Repeat("a", 64<<10+1) }, "auth.password"},
		"line in auth":       {func(r pull) { r.Auth.Auth = "YTpi\r\nX: y" }, "auth.auth"},
		"header in a token":  {func(r pull) { r.Auth.RegistryToken = "a\r\nX: y" }, "auth.registry_token"},
		"line in a token":    {func(r pull) { r.Auth.IdentityToken = "a\n" }, "auth.identity_token"},
		"line in a server":   {func(r pull) { r.Auth.ServerAddress = "a\n" }, "auth.server_address"},
		"no pod":             {func(r pull) { r.SandboxConfig = nil }, ""},
		"namespace as path": {
			func(r pull) { r.SandboxConfig.Metadata.Namespace = "../x" }, "sandbox_config.metadata.namespace",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &cri.PullImageRequest{
				Image: &cri.ImageSpec{Image: imageTag}, Auth: &cri.AuthConfig{Username: "u", Password: "p"},
				SandboxConfig: goodPod(),
			}
			tt.change(r)
			wantProblem(t, checkPullImage(r), tt.field)
		})
	}
}

// TestCheckStopsAtTheFirstProblem: the error has one problem, the first.
func TestCheckStopsAtTheFirstProblem(t *testing.T) {
	c := newCheck()
	c.at("a").item("b", 3).that(false, "c", "is first")
	c.that(false, "d", "is second")
	if got := c.err().Error(); got != "invalid argument: a.b[3].c: is first" {
		t.Errorf("got %q", got)
	}
}
