package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/sandbox/convert"
	"github.com/podd-project/podd/sandbox/usage"
)

// limitGroup does the part of an update that OCI runtimes do not: huge pages, which runc sets for a new container only
// and resets with each update, and, if oom is true, oom_score_adj, which belongs to processes. The warnings list what
// the machine cannot do.
func limitGroup(
	group usage.Cgroup, asked *cri.LinuxContainerResources, facts spec.Facts, oom bool,
) (warnings []string, err error) {
	hugepages := &cri.LinuxContainerResources{HugepageLimits: asked.GetHugepageLimits()}
	limits, _, err := spec.Resources(hugepages, facts)
	if err == nil {
		err = group.Update(&specs.LinuxResources{HugepageLimits: limits.HugepageLimits})
	}
	if !oom {
		return nil, err
	}
	value, warnings, oomErr := spec.OOMScoreAdj(asked, facts)
	if oomErr == nil {
		oomErr = cgroups.AdjustOOM(group.Processes, value)
	}
	return warnings, errors.Join(err, oomErr)
}

// actualResources returns asked with the kernel's values where those can be read. pid is a process of the container.
func actualResources(
	group usage.Cgroup, asked *cri.LinuxContainerResources, pid int,
) (*cri.LinuxContainerResources, error) {
	limits, err := group.Limits()
	if err != nil {
		return asked, err
	}
	actual := convert.FromKernel(asked, limits)
	for key := range actual.GetUnified() {
		if text, err := group.Unified(key); err == nil && text != "" && !strings.Contains(text, "\n") {
			actual.Unified[key] = text // a table (io.max) stays as requested
		}
	}
	if adj, err := oomScoreAdj(pid); err == nil {
		actual.OomScoreAdj = adj
	}
	return actual, nil
}

// oomScoreAdj reads a process's oom_score_adj.
func oomScoreAdj(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}
