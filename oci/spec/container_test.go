package spec

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/moby/profiles/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// with returns base with a security context.
func with(sc *cri.LinuxContainerSecurityContext) Input {
	in := base()
	in.Config.Linux = &cri.LinuxContainerConfig{SecurityContext: sc}
	return in
}

func mounting(ms ...*cri.Mount) Input {
	in := base()
	in.Config.Mounts = ms
	in.Mounts = resolved(in.Config)
	return in
}

func limited(r *cri.LinuxContainerResources) Input {
	in := base()
	in.Config.Linux = &cri.LinuxContainerConfig{Resources: r}
	return in
}

// changed returns base after f.
func changed(f func(*Input)) Input {
	in := base()
	f(&in)
	return in
}

func localhost(ref string) *cri.SecurityProfile {
	return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: ref}
}

type errorCase struct {
	in   Input
	kind error
	says string
}

func checkErrors(t *testing.T, cases map[string]errorCase) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, _, err := Container(c.in)
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("error %v, want kind %v with %q in its text", err, c.kind, c.says)
			}
			if s != nil {
				t.Errorf("Container returned a spec along with error %v", err)
			}
		})
	}
}

func TestContainerErrors(t *testing.T) {
	inv, pre := errdefs.ErrInvalidArgument, errdefs.ErrFailedPrecondition
	profile := func(p cri.SecurityProfile_ProfileType) *cri.SecurityProfile {
		return &cri.SecurityProfile{ProfileType: p}
	}
	env := func(key, value string) Input {
		return changed(func(in *Input) { in.Config.Envs = []*cri.KeyValue{{Key: key, Value: []byte(value)}} })
	}
	checkErrors(t, map[string]errorCase{
		"no config": {changed(func(in *Input) { in.Config = nil }), inv, "no configuration"},
		"no rootfs": {changed(func(in *Input) { in.Rootfs = "" }), inv, "root filesystem"},
		"windows": {
			changed(func(in *Input) { in.Config.Windows = &cri.WindowsContainerConfig{} }), inv, "Windows",
		},
		"no command": {changed(func(in *Input) { in.Image.Entrypoint, in.Image.Cmd = nil, nil }), inv, "command"},
		"empty entrypoint": {
			changed(func(in *Input) { in.Image.Entrypoint, in.Image.Cmd = []string{""}, nil }), inv, "command",
		},
		"empty command":      {changed(func(in *Input) { in.Config.Command = []string{""} }), inv, "command"},
		"NUL in argument":    {changed(func(in *Input) { in.Config.Args = []string{"a", "b\x00c"} }), inv, "argument 2"},
		"argument not UTF-8": {changed(func(in *Input) { in.Config.Args = []string{"\xff"} }), inv, "UTF-8"},
		"env name empty":     {env("", "x"), inv, "name of variable 0"},
		"env name with =":    {env("A=B", "x"), inv, "'='"},
		"env name not UTF-8": {env("A\xff", "x"), inv, "UTF-8"},
		"env value with NUL": {env("ZERO", "a\x00b"), inv, "variable ZERO contains a NUL"},
		"relative cwd":       {changed(func(in *Input) { in.Config.WorkingDir = "srv" }), inv, "absolute"},
		"relative image cwd": {changed(func(in *Input) { in.Image.WorkingDir = "srv" }), inv, "absolute"},
		"cwd of CVE-2024-21626": {
			changed(func(in *Input) { in.Image.WorkingDir = "/proc/self/fd/7" }), inv, "names a process"},
		"uid -1": {changed(func(in *Input) { in.User.UID = 1<<32 - 1 }), inv, "no change"},
		"gid -1": {changed(func(in *Input) { in.User.Groups = []uint32{1<<32 - 1} }), inv, "no change"},
		"capability": {
			with(&cri.LinuxContainerSecurityContext{Capabilities: &cri.Capability{AddCapabilities: []string{"NET_ADMIM"}}}), inv,
			`"NET_ADMIM"`,
		},
		"dropped": {
			with(&cri.LinuxContainerSecurityContext{Capabilities: &cri.Capability{DropCapabilities: []string{"X"}}}), inv, `"X"`,
		},
		"ambient": {
			with(&cri.LinuxContainerSecurityContext{Capabilities: &cri.Capability{AddAmbientCapabilities: []string{""}}}), inv,
			"capability",
		},
		"seccomp unknown": {with(&cri.LinuxContainerSecurityContext{Seccomp: profile(7)}), inv, "profile type"},
		"seccomp path": {
			//lint:ignore SA1019 old kubelets set it
			with(&cri.LinuxContainerSecurityContext{SeccompProfilePath: "localhost/"}), inv, "seccomp profile",
		},
		"seccomp missing": {with(&cri.LinuxContainerSecurityContext{Seccomp: localhost("/a")}), inv, "not loaded"},
		"seccomp off": {changed(func(in *Input) {
			*in = with(&cri.LinuxContainerSecurityContext{Seccomp: profile(cri.SecurityProfile_RuntimeDefault)})
			in.Host.Seccomp = false
		}), pre, "no seccomp"},
		"apparmor off": {with(&cri.LinuxContainerSecurityContext{Apparmor: localhost("p")}), pre, "AppArmor is off"},
		"apparmor name": {
			with(&cri.LinuxContainerSecurityContext{Apparmor: localhost("localhost/")}), inv, "name of an AppArmor",
		},
		"apparmor unknown": {with(&cri.LinuxContainerSecurityContext{Apparmor: profile(7)}), inv, "profile type"},
		//lint:ignore SA1019 old kubelets set it
		"apparmor string": {with(&cri.LinuxContainerSecurityContext{ApparmorProfile: "what"}), inv, `"what"`},
		"apparmor default not loaded": {changed(func(in *Input) {
			*in = with(&cri.LinuxContainerSecurityContext{Apparmor: profile(cri.SecurityProfile_RuntimeDefault)})
			in.Host.AppArmor = true
		}), pre, "not loaded"},
		"namespace path": {changed(func(in *Input) { in.Namespaces.Net = "net" }), inv, "network namespace"},
		"masked path":    {with(&cri.LinuxContainerSecurityContext{MaskedPaths: []string{"proc"}}), inv, "path to mask"},
		"readonly path":  {with(&cri.LinuxContainerSecurityContext{ReadonlyPaths: []string{""}}), inv, "path to mask"},
		"device path": {
			changed(func(in *Input) { in.Devices = []Device{{Node: specs.LinuxDevice{Path: "fuse"}}} }), inv, "fuse",
		},
	})
}

func TestUserNamespaceErrors(t *testing.T) {
	ids := []specs.LinuxIDMapping{{HostID: 1000, Size: 1000}}
	userns := func(f func(*Input)) Input {
		return changed(func(in *Input) {
			in.Namespaces.User, in.Namespaces.UIDs, in.Namespaces.GIDs = "/run/user", ids, ids
			f(in)
		})
	}
	inv := errdefs.ErrInvalidArgument
	checkErrors(t, map[string]errorCase{
		"unmapped user":     {userns(func(in *Input) { in.User.UID = 1000 }), inv, "user id 1000 is not mapped"},
		"unmapped group":    {userns(func(in *Input) { in.User.GID = 5000 }), inv, "group id 5000"},
		"unmapped addition": {userns(func(in *Input) { in.User.Groups = []uint32{1, 2000} }), inv, "group id 2000"},
		"no mappings": {userns(func(in *Input) {
			in.Namespaces.UIDs, in.Namespaces.GIDs, in.User.Groups = nil, nil, nil
		}), inv, "not mapped"},
		"relative": {userns(func(in *Input) { in.Namespaces.User = "user" }), inv, "user namespace"},
		"handler":  {userns(func(in *Input) { in.Handler.UserNamespaces = false }), errdefs.ErrFailedPrecondition, "handler"},
	})
}

func TestMountErrors(t *testing.T) {
	inv := errdefs.ErrInvalidArgument
	ids := []*cri.IDMapping{{HostId: 1, Length: 1}}
	handler := func(m *cri.Mount) Input {
		in := mounting(m)
		in.Handler = Handler{OCIVersion: "1.2.0"}
		return in
	}
	rro := &cri.Mount{ContainerPath: "/a", HostPath: "/b", Readonly: true, RecursiveReadOnly: true}
	checkErrors(t, map[string]errorCase{
		"relative":  {mounting(&cri.Mount{ContainerPath: "a", HostPath: "/b"}), inv, "absolute"},
		"empty":     {mounting(&cri.Mount{HostPath: "/b"}), inv, "absolute"},
		"root":      {mounting(&cri.Mount{ContainerPath: "/x/..", HostPath: "/b"}), inv, "root"},
		"no source": {mounting(&cri.Mount{ContainerPath: "/a"}), inv, "no source"},
		"NUL":       {mounting(&cri.Mount{ContainerPath: "/a", HostPath: "/b\x00"}), inv, "NUL"},
		"both": {
			mounting(&cri.Mount{ContainerPath: "/a", HostPath: "/b", Image: &cri.ImageSpec{Image: "i"}}), inv, "both",
		},
		"rro rw": {
			mounting(&cri.Mount{ContainerPath: "/a", HostPath: "/b", RecursiveReadOnly: true}), inv, "needs readonly",
		},
		"rro slave": {
			mounting(&cri.Mount{ContainerPath: "/a", HostPath: "/b", Readonly: true, RecursiveReadOnly: true, Propagation: 1}),
			inv, "private",
		},
		"rro shared": {
			mounting(&cri.Mount{ContainerPath: "/a", HostPath: "/b", Readonly: true, RecursiveReadOnly: true, Propagation: 2}),
			inv, "private",
		},
		"rro":    {handler(rro), ErrRRO, `"/a"`},
		"spread": {mounting(&cri.Mount{ContainerPath: "/a", HostPath: "/b", Propagation: 9}), inv, "propagation"},
		"option": {
			mounting(&cri.Mount{ContainerPath: "/a", HostPath: "/b", MountOptions: []string{"suid"}}), inv, `"suid"`,
		},
		"half idmap": {
			mounting(&cri.Mount{ContainerPath: "/a", HostPath: "/b", UidMappings: ids}), inv, "both users and groups",
		},
		"idmap": {
			handler(&cri.Mount{ContainerPath: "/a", HostPath: "/b", UidMappings: ids, GidMappings: ids}),
			errdefs.ErrFailedPrecondition, "id-mapped",
		},
		"empty idmap": {
			mounting(&cri.Mount{ContainerPath: "/a", HostPath: "/b", UidMappings: []*cri.IDMapping{{}}, GidMappings: ids}),
			inv, "empty or too long",
		},
		"long idmap": {
			mounting(&cri.Mount{
				ContainerPath: "/a", HostPath: "/b", UidMappings: ids,
				GidMappings: []*cri.IDMapping{{HostId: 1<<32 - 1, Length: 2}},
			}),
			inv, "too long",
		},
	})
	in := mounting(rro)
	in.Mounts = nil
	if _, _, err := Container(in); err == nil {
		t.Error("a mount that was not resolved was dropped without an error")
	}
}

func TestResourceErrors(t *testing.T) {
	inv := errdefs.ErrInvalidArgument
	v1 := limited(&cri.LinuxContainerResources{Unified: map[string]string{"memory.max": "1"}})
	v1.Host.CgroupV2 = false
	uni := func(key, value string) Input {
		return limited(&cri.LinuxContainerResources{Unified: map[string]string{key: value}})
	}
	checkErrors(t, map[string]errorCase{
		"shares":      {limited(&cri.LinuxContainerResources{CpuShares: -1}), inv, "cpu_shares"},
		"one share":   {limited(&cri.LinuxContainerResources{CpuShares: 1}), inv, "cpu_shares"},
		"many shares": {limited(&cri.LinuxContainerResources{CpuShares: 262145}), inv, "cpu_shares"},
		"period":      {limited(&cri.LinuxContainerResources{CpuPeriod: 999}), inv, "cpu_period"},
		"long period": {limited(&cri.LinuxContainerResources{CpuPeriod: 1_000_001}), inv, "cpu_period"},
		"quota":       {limited(&cri.LinuxContainerResources{CpuQuota: 999}), inv, "cpu_quota"},
		"minus quota": {limited(&cri.LinuxContainerResources{CpuQuota: -2}), inv, "cpu_quota"},
		"cpuset":      {limited(&cri.LinuxContainerResources{CpusetCpus: "0\n1"}), inv, "cpuset"},
		"cpuset mems": {limited(&cri.LinuxContainerResources{CpusetMems: "-"}), inv, "cpuset"},
		"memory":      {limited(&cri.LinuxContainerResources{MemoryLimitInBytes: -2}), inv, "memory_limit"},
		"swap":        {limited(&cri.LinuxContainerResources{MemorySwapLimitInBytes: -2}), inv, "memory_swap_limit"},
		"swap alone":  {limited(&cri.LinuxContainerResources{MemorySwapLimitInBytes: 1}), inv, "needs a memory limit"},
		"swap below": {
			limited(&cri.LinuxContainerResources{MemoryLimitInBytes: 2, MemorySwapLimitInBytes: 1}), inv,
			"below the memory limit",
		},
		"page size": {
			limited(&cri.LinuxContainerResources{HugepageLimits: []*cri.HugepageLimit{{PageSize: "3MB", Limit: 1}}}), inv, "3MB",
		},
		"page limit": {
			limited(&cri.LinuxContainerResources{HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB", Limit: 1 << 63}}}), inv,
			"too large",
		},
		"unified v1":    {v1, inv, "cgroup v2"},
		"unified path":  {uni("../x.y", ""), inv, "not the file"},
		"unified dir":   {uni("memory.max/../../x", ""), inv, "not the file"},
		"unified kill":  {uni("cgroup.kill", "1"), inv, "cgroup.kill"},
		"unified bare":  {uni("memory", "1"), inv, "not the file"},
		"unified NUL":   {uni("memory.max", "1\x00"), inv, "NUL"},
		"oom too low":   {limited(&cri.LinuxContainerResources{OomScoreAdj: -1001}), inv, "oom_score_adj"},
		"oom too high":  {limited(&cri.LinuxContainerResources{OomScoreAdj: 1001}), inv, "oom_score_adj"},
		"cgroup string": {changed(func(in *Input) { in.CgroupsPath = "/a\x00" }), inv, "cgroups path"},
	})
}

// TestErrorsHideValues: a variable may hold a password.
func TestErrorsHideValues(t *testing.T) {
	in := base()
	in.Config.Envs = []*cri.KeyValue{{Key: "PASSWORD", Value: []byte("s3cr3t\x00")}}
	_, _, err := Container(in)
	if err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("error %v shows the value of a variable", err)
	}
}

// TestInputUntouched: the same input is used again for the status, and by other containers.
func TestInputUntouched(t *testing.T) {
	in := with(&cri.LinuxContainerSecurityContext{
		Seccomp: localhost("/p"), MaskedPaths: []string{"/a"},
		Capabilities: &cri.Capability{AddAmbientCapabilities: []string{"KILL"}},
	})
	ret := uint(1)
	in.Handler.OCIVersion = "1.0.2"
	in.Seccomp = &seccomp.Seccomp{LinuxSeccomp: specs.LinuxSeccomp{DefaultAction: specs.ActErrno, DefaultErrnoRet: &ret}}
	in.User.Groups = []uint32{1, 2}
	before, _ := json.Marshal(in)
	s, _, err := Container(in)
	if err != nil {
		t.Fatal(err)
	}
	s.Process.User.AdditionalGids[0] = 99
	s.Linux.MaskedPaths[0] = "/changed"
	if after, _ := json.Marshal(in); string(before) != string(after) {
		t.Errorf("input after Container:\n%s\nwant it unchanged:\n%s", after, before)
	}
	if s.Linux.Seccomp.DefaultErrnoRet != nil {
		t.Error("defaultErrnoRet was written for a runtime of version 1.0.2")
	}
}

// TestOwnListsAreNotShared: a plugin that edits one set must not edit the others.
func TestOwnListsAreNotShared(t *testing.T) {
	s, _, err := Container(base())
	if err != nil {
		t.Fatal(err)
	}
	c := s.Process.Capabilities
	c.Bounding[0] = "CAP_X"
	if slices.Contains(c.Effective, "CAP_X") || slices.Contains(c.Permitted, "CAP_X") {
		t.Error("capability sets share their memory")
	}
}
