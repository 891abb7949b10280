package runc

import (
	"context"
	"reflect"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
)

// ofVersion returns a handler whose runtime reports the version.
func ofVersion(version string) *Runtime {
	return &Runtime{probes: driver.NewProbeCache("h", capabilities{}, func(context.Context) (capabilities, error) {
		return capabilities{features: oci.Features{Version: version}}, nil
	})}
}

func TestSwapOnce(t *testing.T) {
	limit, sum := int64(1<<20), int64(1<<20)
	memory := func() *specs.LinuxMemory { return &specs.LinuxMemory{Limit: &limit, Swap: &sum} }
	named := map[string]string{"memory.swap.max": "0", "memory.high": "max"}
	other := map[string]string{"memory.high": "max"}
	for name, tt := range map[string]struct {
		version string
		in      specs.LinuxResources
		swap    bool
	}{
		"runc on v2":      {"runc version 1.5.2", specs.LinuxResources{Memory: memory(), Unified: named}, true},
		"crun on v2":      {"crun version 1.21", specs.LinuxResources{Memory: memory(), Unified: named}, false},
		"crun on v1":      {"crun version 1.21", specs.LinuxResources{Memory: memory()}, true},
		"crun, others":    {"crun version 1.21", specs.LinuxResources{Memory: memory(), Unified: other}, true},
		"unknown runtime": {"", specs.LinuxResources{Memory: memory(), Unified: named}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := ofVersion(tt.version)
			before := tt.in.Memory
			got := r.fixCrunSwapIn(&specs.Spec{Hostname: "h", Linux: &specs.Linux{CgroupsPath: "p", Resources: &tt.in}})
			limits := got.Linux.Resources
			if (limits.Memory.Swap != nil) != tt.swap || *limits.Memory.Limit != limit ||
				!reflect.DeepEqual(limits.Unified, tt.in.Unified) {
				t.Errorf("memory = %+v, unified = %v, want swap: %v, limit %d, unified %v",
					limits.Memory, limits.Unified, tt.swap, limit, tt.in.Unified)
			}
			if got.Hostname != "h" || got.Linux.CgroupsPath != "p" {
				t.Errorf("spec = %+v, want the other fields unchanged", got)
			}
			if tt.in.Memory != before || before.Swap == nil {
				t.Errorf("memory of the request = %+v, want it unchanged", tt.in.Memory)
			}
		})
	}
	r := ofVersion("crun version 1.21")
	if r.fixCrunSwap(nil) != nil || r.fixCrunSwapIn(nil) != nil ||
		r.fixCrunSwap(&specs.LinuxResources{Unified: named}).Memory != nil {
		t.Error("limits without memory: fixCrunSwap added some, want none")
	}
}
