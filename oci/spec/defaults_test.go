package spec

import (
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestRlimitsAreBounded: podd does not ask a runtime for more than it may set.
func TestRlimitsAreBounded(t *testing.T) {
	in := changed(func(in *Input) {
		in.Defaults.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 1024, Hard: 524288}, {Type: "RLIMIT_CORE"}}
		in.Host.RlimitMax = map[string]uint64{"RLIMIT_NOFILE": 1000}
	})
	s, _, err := Container(in)
	if err != nil {
		t.Fatal(err)
	}
	want := []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 1000, Hard: 1000}, {Type: "RLIMIT_CORE"}}
	if got := s.Process.Rlimits; !slices.Equal(got, want) {
		t.Errorf("rlimits = %v, want %v", got, want)
	}
	if in.Defaults.Rlimits[0].Hard != 524288 {
		t.Error("Container changed the node's defaults")
	}
}

// TestReadOnlyDefault: the container's own mounts take the place of the scratch directories.
func TestReadOnlyDefault(t *testing.T) {
	in := mounting(&cri.Mount{ContainerPath: "/tmp/", HostPath: "/data"})
	in.Defaults.ReadOnly = true
	s, _, err := Container(in)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range s.Mounts {
		if slices.Contains(scratchPaths, m.Destination) {
			got = append(got, m.Destination+" "+m.Type)
		}
	}
	if want := []string{"/tmp bind", "/run tmpfs", "/var/tmp tmpfs"}; !s.Root.Readonly || !slices.Equal(got, want) {
		t.Errorf("read-only %v, mounts = %v, want true and %v", s.Root.Readonly, got, want)
	}
}

// TestHooksAreCopied: containers do not share the lists, which CDI and hook directories append to.
func TestHooksAreCopied(t *testing.T) {
	list := append(make([]specs.Hook, 0, 8), specs.Hook{Path: "/a"})
	in := changed(func(in *Input) { in.Defaults.Hooks = &specs.Hooks{Poststop: list} })
	one, _, err := Container(in)
	if err != nil {
		t.Fatal(err)
	}
	two, _, _ := Container(in)
	one.Hooks.Poststop = append(one.Hooks.Poststop, specs.Hook{Path: "/one"})
	two.Hooks.Poststop = append(two.Hooks.Poststop, specs.Hook{Path: "/two"})
	if got := one.Hooks.Poststop[1].Path; got != "/one" || len(in.Defaults.Hooks.Poststop) != 1 {
		t.Errorf("hook of the first container = %s, want /one", got)
	}
}

// TestPidsLimit: a pids.max among the unified limits of the pod takes precedence over the node's.
func TestPidsLimit(t *testing.T) {
	in := limited(&cri.LinuxContainerResources{Unified: map[string]string{"pids.max": "7"}})
	in.Defaults.PidsLimit = 50
	s, _, err := Container(in)
	if err != nil || s.Linux.Resources.Pids != nil {
		t.Errorf("pids = %v, %v; want none beside unified's", s.Linux.Resources.Pids, err)
	}
}

// TestGoMaxProcs: a container that requests CPU and has no limit gets twice that, or the node's minimum.
func TestGoMaxProcs(t *testing.T) {
	type resources = cri.LinuxContainerResources
	for name, test := range map[string]struct {
		resources *resources
		env       string
		least     int
		want      string
	}{
		"off":        {&resources{CpuShares: 1024}, "", 0, ""},
		"request":    {&resources{CpuShares: 1025}, "", 1, "GOMAXPROCS=4"},
		"minimum":    {&resources{CpuShares: 100}, "", 3, "GOMAXPROCS=3"},
		"limit":      {&resources{CpuShares: 1024, CpuQuota: 5000}, "", 1, ""},
		"no limit":   {&resources{CpuShares: 1024, CpuQuota: -1}, "", 1, "GOMAXPROCS=2"},
		"no request": {&resources{CpuShares: 2}, "", 1, ""},
		"nothing":    {nil, "", 1, ""},
		"own":        {&resources{CpuShares: 1024}, "GOMAXPROCS=9", 1, "GOMAXPROCS=9"},
	} {
		t.Run(name, func(t *testing.T) {
			in := limited(test.resources)
			in.Defaults.MinGoMaxProcs = test.least
			if test.env != "" {
				in.Image.Env = []string{test.env}
			}
			s, _, err := Container(in)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			for _, kv := range s.Process.Env {
				if strings.HasPrefix(kv, "GOMAXPROCS=") {
					got = kv
				}
			}
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
