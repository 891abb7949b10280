package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	specs "github.com/opencontainers/runtime-spec/specs-go"

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
		oomErr = adjustOOM(group, value)
	}
	return warnings, errors.Join(err, oomErr)
}

// adjustOOM sets oom_score_adj of every process of the container, repeatedly until there is no new process: one may be
// forked in the meantime by a process with the old value.
func adjustOOM(group usage.Cgroup, value int) error {
	done := map[int]bool{}
	for before := -1; len(done) > before; {
		before = len(done)
		pids, err := group.Processes()
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if done[pid] {
				continue
			}
			if err := setOOMScoreAdj(pid, value); err != nil {
				return fmt.Errorf("set oom_score_adj of process %d to %d: %w", pid, value, err)
			}
			done[pid] = true
		}
	}
	return nil
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

// setOOMScoreAdj writes a process's oom_score_adj; a process that has ended is not an error.
func setOOMScoreAdj(pid, value int) error {
	err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), strconv.AppendInt(nil, int64(value), 10), 0)
	if isProcessGone(err) {
		return nil
	}
	return err
}

// oomScoreAdj reads a process's oom_score_adj.
func oomScoreAdj(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

func isProcessGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}
