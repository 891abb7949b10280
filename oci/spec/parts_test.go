package spec

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/moby/profiles/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestArguments(t *testing.T) {
	l := func(s ...string) []string { return s }
	for name, c := range map[string]struct{ command, args, entrypoint, cmd, want []string }{
		"all of the image":          {nil, nil, l("e"), l("c"), l("e", "c")},
		"args replace cmd":          {nil, l("a"), l("e"), l("c"), l("e", "a")},
		"command replaces all":      {l("x"), nil, l("e"), l("c"), l("x")},
		"command and args":          {l("x"), l("a"), l("e"), l("c"), l("x", "a")},
		"cmd without entrypoint":    {nil, nil, nil, l("c"), l("c")},
		"args without entrypoint":   {nil, l("a"), nil, l("c"), l("a")},
		"reset entrypoint":          {nil, nil, l(""), l("c"), l("c")},
		"an empty argument is kept": {nil, l(""), l("e"), nil, l("e", "")},
		"nothing":                   {nil, nil, nil, nil, l()},
	} {
		got := arguments(c.command, c.args, c.entrypoint, c.cmd)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: arguments = %q, want %q", name, got, c.want)
		}
	}
}

func TestProcessPath(t *testing.T) {
	for path, want := range map[string]bool{
		"/": false, "/proc": false, "/proc/sys/kernel": false, "/processes/self": false, "/dev": false, "/dev/fdset": false,
		"/proc/self": true, "/proc/self/fd/7": true, "/proc/thread-self/cwd": true, "/proc/1/root": true, "/proc/123": true,
		"/dev/fd": true, "/dev/fd/7": true, "/srv/proc/self": false,
	} {
		if got := processPath(path); got != want {
			t.Errorf("processPath(%q) = %v, want %v", path, got, want)
		}
	}
}

func TestVersion(t *testing.T) {
	for v, want := range map[string]bool{
		"1.0.2": false, "1.1.0": true, "1.2.1": true, "2.0.0": true, "1.1.0-rc.1": true, "0.9": false, "": false,
		"x.y": false, "1": false,
	} {
		if AtLeast(v, 1, 1) != want {
			t.Errorf("AtLeast(%q, 1, 1) = %v, want %v", v, !want, want)
		}
	}
}

func TestCgroupsPath(t *testing.T) {
	for name, c := range map[string]struct {
		systemd          bool
		parent, id, want string
		err              bool
	}{
		"cgroupfs":          {parent: "/kubepods/burstable/pod1", id: "c1", want: "/kubepods/burstable/pod1/crio-c1"},
		"cgroupfs default":  {id: "c1", want: "/podd/crio-c1"},
		"cgroupfs relative": {parent: "kubepods", id: "c1", want: "/kubepods/crio-c1"},
		"cgroupfs slice":    {parent: "/a.slice/", id: "c1", want: "/a.slice/crio-c1"},
		"cgroupfs up":       {parent: "/a/../b", id: "c1", err: true},
		"cgroupfs dot":      {parent: "/a/./b", id: "c1", err: true},
		"cgroupfs NUL":      {parent: "/a\x00", id: "c1", err: true},
		"cgroupfs newline":  {parent: "/a\n", id: "c1", err: true},
		"systemd path": {
			systemd: true, parent: "/kubepods.slice/kubepods-pod1.slice", id: "c1", want: "kubepods-pod1.slice:crio:c1",
		},
		"systemd slice":       {systemd: true, parent: "user-1000.slice", id: "c1", want: "user-1000.slice:crio:c1"},
		"systemd default":     {systemd: true, id: "c1", want: "podd.slice:crio:c1"},
		"systemd root":        {systemd: true, parent: "-.slice", id: "c1", want: "-.slice:crio:c1"},
		"systemd no slice":    {systemd: true, parent: "/kubepods/pod1", id: "c1", err: true},
		"systemd empty":       {systemd: true, parent: ".slice", id: "c1", err: true},
		"systemd dashes":      {systemd: true, parent: "a--b.slice", id: "c1", err: true},
		"systemd first dash":  {systemd: true, parent: "-a.slice", id: "c1", err: true},
		"systemd last dash":   {systemd: true, parent: "a-.slice", id: "c1", err: true},
		"systemd colon":       {systemd: true, parent: "a:b.slice", id: "c1", err: true},
		"systemd space":       {systemd: true, parent: "a b.slice", id: "c1", err: true},
		"systemd up":          {systemd: true, parent: "/a/../b.slice", id: "c1", err: true},
		"no id":               {parent: "/a", err: true},
		"id with slash":       {parent: "/a", id: "../x", err: true},
		"id with colon":       {systemd: true, parent: "a.slice", id: "a:b", err: true},
		"id begins with dash": {parent: "/a", id: "-x", err: true},
	} {
		got, err := CgroupsPath(c.systemd, c.parent, "crio", c.id)
		if got != c.want || (err != nil) != c.err || err != nil && !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: CgroupsPath = %q, %v, want %q", name, got, err, c.want)
		}
	}
}

func TestOOMScoreAdj(t *testing.T) {
	for name, c := range map[string]struct {
		asked       int64
		floor, want int
		warns       bool
	}{
		"as asked":                {-997, -1000, -997, false},
		"not specified":           {0, -1000, 0, false},
		"raised":                  {-997, 0, 0, true},
		"not specified and floor": {0, 300, 300, false},
		"at the floor":            {-500, -500, -500, false},
		"above":                   {1000, 300, 1000, false},
	} {
		got, warnings, err := OOMScoreAdj(&cri.LinuxContainerResources{OomScoreAdj: c.asked}, Facts{OOMScoreAdjMin: c.floor})
		if err != nil || got != c.want || (len(warnings) > 0) != c.warns {
			t.Errorf("%s: OOMScoreAdj = %d, %q, %v, want %d", name, got, warnings, err, c.want)
		}
	}
	if got, _, err := OOMScoreAdj(nil, Facts{OOMScoreAdjMin: -1000}); got != 0 || err != nil {
		t.Errorf("OOMScoreAdj without resources = %d, %v, want the lowest", got, err)
	}
}

func TestResources(t *testing.T) {
	full := base().Host
	v1 := full
	v1.CgroupV2 = false
	noHuge := full
	noHuge.Hugetlb = false
	unified := func(key, value string) map[string]string { return map[string]string{key: value} }
	for name, c := range map[string]struct {
		r     *cri.LinuxContainerResources
		f     Facts
		want  specs.LinuxResources
		warns string
	}{
		"none":  {nil, full, specs.LinuxResources{}, ""},
		"empty": {&cri.LinuxContainerResources{}, full, specs.LinuxResources{}, ""},
		"unlimited cpu": {
			&cri.LinuxContainerResources{CpuQuota: -1}, full, specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: new(int64(-1))}},
			"",
		},
		"unlimited": {
			&cri.LinuxContainerResources{MemoryLimitInBytes: -1}, full,
			specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(-1))}}, "",
		},
		"unlimited swap": {
			&cri.LinuxContainerResources{MemoryLimitInBytes: 8, MemorySwapLimitInBytes: -1}, v1,
			specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(8)), Swap: new(int64(-1))}}, "",
		},
		"no swap on v2": {&cri.LinuxContainerResources{MemoryLimitInBytes: 8}, full, specs.LinuxResources{
			Memory: &specs.LinuxMemory{Limit: new(int64(8)), Swap: new(int64(8))}, Unified: unified(swapMax, "0"),
		}, ""},
		"some swap on v2": {&cri.LinuxContainerResources{
			MemoryLimitInBytes: 8, MemorySwapLimitInBytes: 11, Unified: unified("memory.high", "7"),
		}, full, specs.LinuxResources{
			Memory:  &specs.LinuxMemory{Limit: new(int64(8)), Swap: new(int64(11))},
			Unified: map[string]string{swapMax: "3", "memory.high": "7"},
		}, ""},
		"unlimited swap on v2": {&cri.LinuxContainerResources{MemorySwapLimitInBytes: -1}, full, specs.LinuxResources{
			Memory: &specs.LinuxMemory{Swap: new(int64(-1))}, Unified: unified(swapMax, "max"),
		}, ""},
		"swap named on v2": {&cri.LinuxContainerResources{
			MemoryLimitInBytes: 8, Unified: unified(swapMax, "5"),
		}, full, specs.LinuxResources{
			Memory: &specs.LinuxMemory{Limit: new(int64(8))}, Unified: unified(swapMax, "5"),
		}, ""},
		"no swap on v1": {
			&cri.LinuxContainerResources{MemoryLimitInBytes: 8}, v1,
			specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(8)), Swap: new(int64(8))}}, "",
		},
		"hugetlb off": {&cri.LinuxContainerResources{
			HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB", Limit: 1}, {PageSize: "1GB"}},
		}, noHuge, specs.LinuxResources{}, "2MB"},
	} {
		got, warnings, err := Resources(c.r, c.f)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(c.want, *got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if all := strings.Join(warnings, "\n"); (c.warns == "") != (all == "") || !strings.Contains(all, c.warns) {
			t.Errorf("%s: warnings %q, want %q", name, all, c.warns)
		}
	}
}

// TestCapabilityRules: every combination of ALL and a name in the three lists.
func TestCapabilityRules(t *testing.T) {
	l := func(s ...string) []string { return s }
	count := len(knownCapabilities())
	for name, c := range map[string]struct {
		add, drop, raise []string
		total            int
		has, not, amb    []string
	}{
		"default":          {total: 14, has: l("CAP_CHOWN"), not: l("CAP_SYS_ADMIN")},
		"add":              {add: l("sys_admin"), total: 15, has: l("CAP_SYS_ADMIN")},
		"prefix":           {add: l("CAP_SYS_ADMIN"), total: 15, has: l("CAP_SYS_ADMIN")},
		"drop":             {drop: l("CHOWN"), total: 13, not: l("CAP_CHOWN")},
		"both":             {add: l("SYS_ADMIN"), drop: l("SYS_ADMIN"), total: 14, not: l("CAP_SYS_ADMIN")},
		"add all":          {add: l("ALL"), total: count, has: l("CAP_SYS_ADMIN")},
		"add all drop one": {add: l("all"), drop: l("SYS_ADMIN"), total: count - 1, not: l("CAP_SYS_ADMIN")},
		"drop all":         {drop: l("ALL"), total: 0},
		"drop all add one": {add: l("KILL"), drop: l("ALL"), total: 1, has: l("CAP_KILL")},
		"all and all":      {add: l("ALL"), drop: l("ALL"), total: 0},
		"ambient":          {raise: l("SYS_NICE"), total: 15, has: l("CAP_SYS_NICE"), amb: l("CAP_SYS_NICE")},
		"ambient drop all": {raise: l("SYS_NICE"), drop: l("ALL"), total: 1, amb: l("CAP_SYS_NICE")},
		"ambient dropped":  {raise: l("SYS_NICE"), drop: l("SYS_NICE"), total: 14},
		"all ambient": {
			raise: l("ALL"), drop: l("KILL"), total: count - 1,
			amb: keep(knownCapabilities(), func(s string) bool { return s != "CAP_KILL" }),
		},
		"ambient all, none": {raise: l("ALL"), drop: l("ALL"), total: 0},
	} {
		in := with(&cri.LinuxContainerSecurityContext{
			Capabilities: &cri.Capability{AddCapabilities: c.add, DropCapabilities: c.drop, AddAmbientCapabilities: c.raise},
		})
		s, warnings, err := Container(in)
		if err != nil || len(warnings) > 0 {
			t.Fatalf("%s: warnings %q, error %v, want none", name, warnings, err)
		}
		got := s.Process.Capabilities
		missing := func(want string) bool { return !slices.Contains(got.Bounding, want) }
		present := func(want string) bool { return slices.Contains(got.Bounding, want) }
		if len(got.Bounding) != c.total || slices.ContainsFunc(c.has, missing) || slices.ContainsFunc(c.not, present) {
			t.Errorf("%s: bounding set %q, want %d capabilities with %q, without %q",
				name, got.Bounding, c.total, c.has, c.not)
		}
		if !slices.Equal(got.Effective, got.Bounding) || !slices.Equal(got.Permitted, got.Bounding) {
			t.Errorf("%s: sets = %+v, want equal effective, permitted and bounding sets", name, got)
		}
		if !slices.Equal(got.Ambient, c.amb) || !slices.Equal(got.Inheritable, c.amb) {
			t.Errorf("%s: ambient %q, inheritable %q, want both %q", name, got.Ambient, got.Inheritable, c.amb)
		}
	}
}

// TestCapabilityWarnings: a capability newer than the kernel is reported only to containers that name it.
func TestCapabilityWarnings(t *testing.T) {
	held := knownCapabilities()
	held = held[:len(held)-1] // the kernel lacks the newest
	newest := knownCapabilities()[len(held)]
	for name, c := range map[string]struct {
		sc   *cri.LinuxContainerSecurityContext
		want bool
	}{
		"all": {&cri.LinuxContainerSecurityContext{Capabilities: &cri.Capability{AddCapabilities: []string{"ALL"}}}, false},
		"named": {
			&cri.LinuxContainerSecurityContext{
				Capabilities: &cri.Capability{AddCapabilities: []string{strings.ToLower(newest)}},
			},
			true,
		},
	} {
		in := with(c.sc)
		in.Host.Capabilities = held
		_, warnings, err := Container(in)
		if err != nil || (len(warnings) == 1) != c.want {
			t.Errorf("%s: warnings %q, error %v, want a warning: %v", name, warnings, err, c.want)
		}
	}
}

func TestSeccompRequest(t *testing.T) {
	def := &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}
	for name, c := range map[string]struct {
		profile    *cri.SecurityProfile
		deprecated string
		want       *cri.SecurityProfile
	}{
		"nothing":    {nil, "", nil},
		"unconfined": {nil, "unconfined", nil},
		"default":    {nil, "runtime/default", def},
		"docker":     {nil, "docker/default", def},
		"localhost":  {nil, "localhost//a/b.json", localhost("/a/b.json")},
		"new wins":   {def, "unconfined", def},
	} {
		got, err := SeccompRequest(c.profile, c.deprecated)
		if err != nil || got.String() != c.want.String() {
			t.Errorf("%s: SeccompRequest = %v, %v, want %v", name, got, err, c.want)
		}
	}
	if _, err := SeccompRequest(nil, "other"); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("SeccompRequest of an unknown profile: error %v, want ErrInvalidArgument", err)
	}
}

// TestLocalAppArmorUnconfined: a Localhost profile cannot be a request for none.
func TestLocalAppArmorUnconfined(t *testing.T) {
	for name, c := range map[string]struct {
		profile    *cri.SecurityProfile
		deprecated string
	}{
		"profile":    {localhost("unconfined"), ""},
		"prefix":     {localhost("localhost/unconfined"), ""},
		"deprecated": {nil, "localhost/unconfined"},
	} {
		if got, err := AppArmorRequest(c.profile, c.deprecated); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: AppArmorRequest = %v, %v, want ErrInvalidArgument", name, got, err)
		}
	}
}

// TestX32: RuntimeDefault has no rules for x32 where the kernel lacks it; a Localhost profile is as it is written.
func TestX32(t *testing.T) {
	all := []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32}
	def := &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}
	for name, c := range map[string]struct {
		without, ownKernel bool
		profile            *cri.SecurityProfile
		want               []specs.Arch
	}{
		"default":               {false, false, def, all},
		"default without":       {true, false, def, all[:2]},
		"with a kernel its own": {true, true, def, all},
		"local without":         {true, false, localhost("/p.json"), all},
	} {
		in := with(&cri.LinuxContainerSecurityContext{Seccomp: c.profile})
		in.Host.NoX32, in.Handler.OwnKernel, in.Seccomp = c.without, c.ownKernel, seccomp.DefaultProfile()
		s, _, err := Container(in)
		if err != nil || !slices.Equal(s.Linux.Seccomp.Architectures, c.want) {
			t.Errorf("%s: architectures = %v, %v, want %v", name, s.Linux.Seccomp.Architectures, err, c.want)
		}
	}
}

// TestMissingCallsWithoutErrno: gVisor returns EPERM for every rule with an error, so ENOSYS, with which programs use
// an older call, comes from a tracer that is not there.
func TestMissingCallsWithoutErrno(t *testing.T) {
	for _, ownKernel := range []bool{false, true} {
		in := with(&cri.LinuxContainerSecurityContext{
			Seccomp: &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}})
		in.Handler.OwnKernel = ownKernel
		s, _, err := Container(in)
		if err != nil {
			t.Fatal(err)
		}
		want := map[bool]specs.LinuxSeccompAction{false: specs.ActErrno, true: specs.ActTrace}[ownKernel]
		i := slices.IndexFunc(s.Linux.Seccomp.Syscalls, func(r specs.LinuxSyscall) bool {
			return slices.Contains(r.Names, "clone3") && r.Action != specs.ActAllow
		})
		if i < 0 || s.Linux.Seccomp.Syscalls[i].Action != want {
			t.Errorf("own kernel = %v: rule %d of %+v, want one of clone3 with %s", ownKernel, i, s.Linux.Seccomp.Syscalls,
				want)
		}
	}
}

// TestDefaultSeccompRules: capabilities, architecture and kernel choose among the rules.
func TestDefaultSeccompRules(t *testing.T) {
	has := func(s *specs.LinuxSeccomp, call string) bool {
		return slices.ContainsFunc(s.Syscalls, func(r specs.LinuxSyscall) bool {
			return r.Action == specs.ActAllow && len(r.Args) == 0 && slices.Contains(r.Names, call)
		})
	}
	f := base().Host
	old := f
	old.Kernel = KernelVersion{4, 4}
	arm := f
	arm.Arch = "arm64"
	p := seccomp.DefaultProfile()
	for name, c := range map[string]struct {
		caps []string
		f    Facts
		call string
		want bool
	}{
		"read is allowed":              {nil, f, "read", true},
		"mount without":                {nil, f, "mount", false},
		"mount with CAP_SYS_ADMIN":     {[]string{"CAP_SYS_ADMIN"}, f, "mount", true},
		"ptrace on a new kernel":       {nil, f, "ptrace", true},
		"ptrace on an old kernel":      {nil, old, "ptrace", false},
		"arch_prctl on amd64":          {nil, f, "arch_prctl", true},
		"arch_prctl on arm64":          {nil, arm, "arch_prctl", false},
		"keyctl is never":              {knownCapabilities(), f, "keyctl", false},
		"reboot with CAP_SYS_BOOT":     {[]string{"CAP_SYS_BOOT"}, f, "reboot", true},
		"clone3 is not silently allow": {nil, f, "clone3", false},
	} {
		if got := has(filterRules(p, c.caps, c.f), c.call); got != c.want {
			t.Errorf("%s: %s is allowed: %v, want %v", name, c.call, got, c.want)
		}
	}
	if got := filterRules(p, nil, arm).Architectures; !slices.Equal(got, []specs.Arch{specs.ArchAARCH64, specs.ArchARM}) {
		t.Errorf("architectures of arm64 = %q, want aarch64 and arm", got)
	}
}

func TestExecProcess(t *testing.T) {
	s, _, err := Container(changed(func(in *Input) {
		in.Config.Tty = true
		in.Config.Linux = limited(&cri.LinuxContainerResources{OomScoreAdj: 10}).Config.Linux
	}))
	if err != nil {
		t.Fatal(err)
	}
	s.Process.Env = slices.DeleteFunc(s.Process.Env, func(kv string) bool { return strings.HasPrefix(kv, "TERM=") })
	env := len(s.Process.Env)
	p, err := ExecProcess(s.Process, []string{"sh", "-c", "x"}, false, "")
	if err != nil {
		t.Fatal(err)
	}
	if p.Terminal || !slices.Equal(p.Args, []string{"sh", "-c", "x"}) || p.Cwd != s.Process.Cwd || *p.OOMScoreAdj != 10 ||
		len(p.Env) != env {
		t.Errorf("ExecProcess = %+v, want the container's process with the command and without a terminal", p)
	}
	tty, _ := ExecProcess(s.Process, []string{"sh"}, true, "")
	if !tty.Terminal || !slices.Contains(tty.Env, "TERM=xterm") {
		t.Errorf("ExecProcess with a terminal: environment %q, want TERM=xterm in it", tty.Env)
	}
	if s.Process.Args[0] == "sh" || len(s.Process.Env) != env {
		t.Errorf("ExecProcess changed the container's process: %q", s.Process.Args)
	}
	for name, cmd := range map[string][]string{"none": nil, "empty": {""}, "NUL": {"a\x00"}, "not UTF-8": {"sh", "\xff"}} {
		if _, err := ExecProcess(s.Process, cmd, false, ""); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("ExecProcess, command %s: error %v, want ErrInvalidArgument", name, err)
		}
	}
	if _, err := ExecProcess(nil, []string{"sh"}, false, ""); err == nil {
		t.Error("ExecProcess without a container's process: no error")
	}
}

func TestPauseErrors(t *testing.T) {
	one := &cri.Int64Value{Value: 1}
	for name, sc := range map[string]*cri.LinuxSandboxSecurityContext{
		"group without user":  {RunAsGroup: one},
		"negative user":       {RunAsUser: &cri.Int64Value{Value: -1}},
		"user too large":      {RunAsUser: &cri.Int64Value{Value: 1<<32 - 1}},
		"group too large":     {RunAsUser: one, RunAsGroup: &cri.Int64Value{Value: 1 << 40}},
		"supplemental group":  {SupplementalGroups: []int64{-5}},
		"profile not loaded":  {Seccomp: localhost("/p")},
		"profile of old form": {SeccompProfilePath: "what"},
	} {
		in := base()
		in.Pod.Linux = &cri.LinuxPodSandboxConfig{SecurityContext: sc}
		_, _, err := Pause(PauseInput{ID: in.ID, Pod: in.Pod, Rootfs: in.Rootfs, Handler: in.Handler, Host: in.Host})
		if !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: Pause: error %v, want ErrInvalidArgument", name, err)
		}
	}
}

// TestPauseWithoutSeccomp: the pod did not request the default profile, so its absence is no error.
func TestPauseWithoutSeccomp(t *testing.T) {
	in := base()
	in.Host.Seccomp = false
	s, _, err := Pause(PauseInput{ID: in.ID, Pod: in.Pod, Rootfs: in.Rootfs, Handler: in.Handler, Host: in.Host})
	if err != nil || s.Linux.Seccomp != nil {
		t.Errorf("Pause = %+v, %v, want no seccomp profile and no error", s, err)
	}
}

// TestHostname: HOSTNAME is the name in the pod's UTS namespace.
func TestHostname(t *testing.T) {
	for name, c := range map[string]struct{ uts, pod, node, want string }{
		"pod":                   {"/uts", "web-0", "node-1", "web-0"},
		"pod without a name":    {"/uts", "", "node-1", ""},
		"node":                  {Host, "", "node-1", "node-1"},
		"node, another request": {Host, "web-0", "node-1", "node-1"},
		"node of unknown name":  {Host, "web-0", "", "web-0"},
	} {
		in := base()
		in.Namespaces.UTS, in.Pod.Hostname, in.Host.Hostname = c.uts, c.pod, c.node
		s, _, err := Container(in)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, kv := range s.Process.Env {
			if value, ok := strings.CutPrefix(kv, "HOSTNAME="); ok {
				got = value
			}
		}
		if got != c.want {
			t.Errorf("%s: HOSTNAME = %q, want %q", name, got, c.want)
		}
	}
}

func TestPrivilegedWithoutHostDevices(t *testing.T) {
	for name, c := range map[string]struct{ without, ownKernel, node, all bool }{
		"host devices":           {false, false, true, true},
		"without":                {true, false, false, false},
		"without, in own kernel": {true, true, false, true},
	} {
		in := with(&cri.LinuxContainerSecurityContext{Privileged: true})
		in.NoHostDevices, in.Handler.OwnKernel = c.without, c.ownKernel
		in.Host.Devices = []Device{{Node: specs.LinuxDevice{Path: "/dev/sda", Type: "b", Major: 8}, Access: "rwm"}}
		in.Devices = []Device{{Node: specs.LinuxDevice{Path: "/dev/mine", Type: "c", Major: 9}, Access: "r"}}
		s, _, err := Container(in)
		if err != nil {
			t.Fatal(err)
		}
		has := func(path string) bool {
			return slices.ContainsFunc(s.Linux.Devices, func(d specs.LinuxDevice) bool { return d.Path == path })
		}
		if has("/dev/sda") != c.node || !has("/dev/mine") {
			t.Errorf("%s: devices = %v, want /dev/mine, and /dev/sda: %v", name, s.Linux.Devices, c.node)
		}
		if rule := s.Linux.Resources.Devices[0]; rule.Allow != c.all {
			t.Errorf("%s: first rule = %+v, want to allow all devices: %v", name, rule, c.all)
		}
	}
}

// TestValueNotUTF8: the container starts, with a mark for each byte that config.json cannot carry.
func TestValueNotUTF8(t *testing.T) {
	s, warnings, err := Container(changed(func(in *Input) {
		in.Config.Envs = []*cri.KeyValue{{Key: "LATIN", Value: []byte("caf\xe9\xff")}, {Key: "GOOD", Value: []byte("ü\n")}}
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"LATIN=caf\uFFFD\uFFFD", "GOOD=ü\n"} {
		if !slices.Contains(s.Process.Env, want) {
			t.Errorf("environment = %q, want %q", s.Process.Env, want)
		}
	}
	about := func(name string) bool {
		return slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, name) })
	}
	if !about("LATIN") || about("GOOD") || about("caf") {
		t.Errorf("warnings = %q, want one that names LATIN and not its value", warnings)
	}
}

// TestNoQuota: a container without a quota is created without one; -1 lifts the quota of one that runs.
func TestNoQuota(t *testing.T) {
	s, _, err := Container(limited(&cri.LinuxContainerResources{CpuPeriod: 100_000, CpuQuota: -1}))
	if err != nil || s.Linux.Resources.CPU.Quota != nil || *s.Linux.Resources.CPU.Period != 100_000 {
		t.Errorf("CPU = %+v, %v, want a period and no quota", s.Linux.Resources.CPU, err)
	}
}

// TestWritableCgroups: only a container in a user namespace has writable cgroups, with limits. A privileged one sees
// the node's, which a new mount would change.
func TestWritableCgroups(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Input)
		access string
		typ    string
	}{
		"user namespace": {inUserNamespace, "rw", "cgroup"},
		"none":           {func(*Input) {}, "ro", "cgroup"},
		"v1": {func(in *Input) {
			in.Host.CgroupV2 = false
			inUserNamespace(in)
		}, "ro", "cgroup"},
		"privileged": {func(in *Input) { in.Config.Linux.SecurityContext.Privileged = true }, "rw", "bind"},
		"privileged on v1": {func(in *Input) {
			in.Config.Linux.SecurityContext.Privileged, in.Host.CgroupV2 = true, false
		}, "rw", "cgroup"},
		"in its own kernel": {func(in *Input) { in.Handler.OwnKernel = true }, "ro", "cgroup"},
	} {
		in := with(&cri.LinuxContainerSecurityContext{})
		in.WritableCgroups, in.Host.CgroupV2, in.Handler.UserNamespaces = true, true, true
		c.change(&in)
		s, warnings, err := Container(in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		told := slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "writable_cgroups") })
		if want := c.access == "ro"; told != want {
			t.Errorf("%s: warnings = %q, want one: %v", name, warnings, want)
		}
		i := slices.IndexFunc(s.Mounts, func(m specs.Mount) bool { return m.Destination == "/sys/fs/cgroup" })
		if m := s.Mounts[i]; !slices.Contains(m.Options, c.access) || m.Type != c.typ {
			t.Errorf("%s: mount = %+v, want %s and %s", name, m, c.typ, c.access)
		}
		if got, want := s.Linux.Resources.Unified["cgroup.max.descendants"] != "", name == "user namespace"; got != want {
			t.Errorf("%s: limits of cgroups = %v, want them: %v", name, s.Linux.Resources.Unified, want)
		}
	}
}

func inUserNamespace(in *Input) {
	ids := []specs.LinuxIDMapping{{HostID: 65536, Size: 65536}}
	in.Namespaces.User, in.Namespaces.UIDs, in.Namespaces.GIDs = "/run/user", ids, ids
}

func TestReservedAnnotationsOfPods(t *testing.T) {
	s, _, err := Container(changed(func(in *Input) {
		in.Annotations = map[string]string{"dev.gvisor.spec.rootfs": "kept", "run.oci.timens_offset": "kept"}
		for _, key := range []string{
			"io.kubernetes.cri.sandbox-id", "io.kubernetes.cri-o.x", "io.podd.kind", "org.criu.config",
			"dev.gvisor.internal.checkpoint.path", "dev.gvisor.tar.rootfs.upper",
			"run.oci.hooks.stdout", "run.oci.hooks.stderr", "run.oci.seccomp.receiver", "run.oci.seccomp.plugins",
			"run.oci.pidfd_receiver", "run.oci.systemd.force_cgroup_v1", "run.oci.a-later-one",
		} {
			in.Annotations[key] = "/etc/hostile"
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range s.Annotations {
		if value == "/etc/hostile" {
			t.Errorf("annotation %s of the pod reached the runtime, want it left out", key)
		}
	}
	for _, key := range []string{"dev.gvisor.spec.rootfs", "run.oci.timens_offset"} {
		if s.Annotations[key] != "kept" {
			t.Errorf("annotation %s did not reach the runtime, which the handler allows", key)
		}
	}
}
