package handler

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/spec"
)

func TestDefaultIsValid(t *testing.T) {
	c := StandardDefaults()
	c.Validate(func(key string, err error) { t.Errorf("Validate: %s: %v", key, err) })
	got, err := c.Spec(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := spec.Defaults{
		Rlimits: []specs.POSIXRlimit{
			{Type: "RLIMIT_CORE", Hard: unlimited}, {Type: "RLIMIT_NOFILE", Soft: 1024, Hard: 524288},
			{Type: "RLIMIT_NPROC", Soft: unlimited, Hard: unlimited},
		},
		Capabilities: spec.DefaultCapabilities(), PidsLimit: -1,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestBaseTakesPrecedence: what a handler's base_runtime_spec sets replaces the node's; the rest stays.
func TestBaseTakesPrecedence(t *testing.T) {
	umask, pids := uint32(0o27), int64(9)
	base := &specs.Spec{
		Root: &specs.Root{Readonly: true},
		Process: &specs.Process{
			User: specs.User{Umask: &umask}, Env: []string{"B=2"},
			Rlimits:      []specs.POSIXRlimit{{Type: "RLIMIT_CORE", Soft: 1, Hard: 2}},
			Capabilities: &specs.LinuxCapabilities{Bounding: []string{"CAP_KILL", "CAP_CHOWN"}},
		},
		Hooks:  &specs.Hooks{Poststop: []specs.Hook{{Path: "/bin/true"}}},
		Mounts: []specs.Mount{{Destination: "/x"}},
		Linux:  &specs.Linux{Resources: &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &pids}}},
	}
	c := StandardDefaults()
	c.Ulimits, c.Env, c.PidsLimit = map[string]string{"core": "7", "nice": "3", "cpu": ""}, []string{"A=1"}, 50
	got, err := c.Spec(base)
	if err != nil {
		t.Fatal(err)
	}
	want := spec.Defaults{
		Rlimits: []specs.POSIXRlimit{
			{Type: "RLIMIT_NICE", Soft: 3, Hard: 3}, {Type: "RLIMIT_CORE", Soft: 1, Hard: 2},
		},
		Capabilities: []string{"CAP_CHOWN", "CAP_KILL"}, Env: []string{"A=1", "B=2"}, PidsLimit: 9, ReadOnly: true,
		Umask: &umask, Mounts: base.Mounts, Hooks: base.Hooks,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestExecCPUs(t *testing.T) {
	for cpus, want := range map[string]string{"": "", "3": "3", "2-5": "2", "1,4-6": "1"} {
		r := &cri.LinuxContainerResources{CpusetCpus: cpus}
		if got := (Defaults{ExecCPUAffinity: ExecOnFirstCPU}).ExecCPUs(r); got != want {
			t.Errorf("of cpuset %q: %q, want %q", cpus, got, want)
		}
		if got := (Defaults{}).ExecCPUs(r); got != "" {
			t.Errorf("not configured: %q", got)
		}
	}
}
