package convert

import (
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"google.golang.org/protobuf/proto"

	"github.com/podd-project/podd/oci/cgroups"
)

func TestFromKernel(t *testing.T) {
	type resources = cri.LinuxContainerResources
	const unlimited = cgroups.Unlimited
	noLimits := cgroups.Limits{CPUQuota: -1, CPUPeriod: 100000, Memory: unlimited, MemorySwap: unlimited}
	hugepages := []*cri.HugepageLimit{{PageSize: "1GB", Limit: 1}}
	unified := map[string]string{"memory.high": "5"}
	for name, tt := range map[string]struct {
		asked  *resources
		kernel cgroups.Limits
		want   *resources
	}{
		"nothing":             {nil, cgroups.Limits{CPUQuota: -1, Memory: unlimited}, &resources{}},
		"no limit, not asked": {nil, noLimits, &resources{CpuPeriod: 100000}},
		"no limit, asked for": {
			&resources{CpuQuota: -1, MemoryLimitInBytes: -1, MemorySwapLimitInBytes: -1}, noLimits,
			&resources{CpuQuota: -1, CpuPeriod: 100000, MemoryLimitInBytes: -1, MemorySwapLimitInBytes: -1},
		},
		"limit removed": {
			&resources{CpuQuota: 5000, MemoryLimitInBytes: 4096}, noLimits,
			&resources{CpuQuota: -1, CpuPeriod: 100000, MemoryLimitInBytes: -1},
		},
		"rounded to a page": {
			&resources{MemoryLimitInBytes: 5000}, cgroups.Limits{CPUQuota: -1, Memory: 4096},
			&resources{MemoryLimitInBytes: 4096},
		},
		"shares on v1": {
			&resources{CpuShares: 512}, cgroups.Limits{CPUShares: 513, Memory: unlimited}, &resources{CpuShares: 513},
		},
		"weight of new runtimes": {
			&resources{CpuShares: 512}, cgroups.Limits{CPUShares: 511, CPUWeight: 59, Memory: unlimited},
			&resources{CpuShares: 512},
		},
		"weight of old runtimes": {
			&resources{CpuShares: 512}, cgroups.Limits{CPUShares: 130, CPUWeight: 20, Memory: unlimited},
			&resources{CpuShares: 512},
		},
		"weight of another program": {
			&resources{CpuShares: 512}, cgroups.Limits{CPUShares: 1024, CPUWeight: 100, Memory: unlimited},
			&resources{CpuShares: 1024},
		},
		"other page size": {
			&resources{HugepageLimits: hugepages}, cgroups.Limits{Memory: unlimited},
			&resources{HugepageLimits: hugepages},
		},
		"unified stays": {
			&resources{Unified: unified}, cgroups.Limits{Memory: unlimited}, &resources{Unified: unified},
		},
	} {
		asked := proto.CloneOf(tt.asked)
		if got := FromKernel(tt.asked, tt.kernel); !proto.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
		if !proto.Equal(asked, tt.asked) {
			t.Errorf("%s: the request was changed", name)
		}
	}
}
