package sandbox

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/garbage"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/record"
)

// The kinds of Finding.
const (
	// FindingLeak: a resource on the machine is in no record.
	FindingLeak = "leak"
	// FindingMissing: a recorded resource is not on the machine.
	FindingMissing = "missing"
	// FindingRecord: a record cannot be read.
	FindingRecord = "record"
	// FindingUnknown: the machine could not be queried.
	FindingUnknown = "unknown"
)

// kindAddress is an address allocated to a pod without a record. Unlike other garbage it may belong to another
// container engine on the same network, so it is freed on demand only.
const kindAddress = "address"

// Finding is one thing in which records and machine disagree.
type Finding struct {
	Problem string `json:"problem"`
	What    string `json:"what"`
	ID      string `json:"id,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// recordSet is the content of the records on disk.
type recordSet struct {
	pods       []*Pod
	containers map[string][]*Container // by pod
	claimed    map[string]bool         // ids of pods and containers, readable or not
	findings   []Finding
}

// Check compares the records on disk with the machine, and changes nothing. It needs no Recover before it and may run
// concurrently with everything else: the machine is listed first, so resources created later have a record by
// then. Resources removed in the meantime may be found, but not twice.
func (e *Engine) Check(ctx context.Context) ([]Finding, error) {
	candidates, pending := e.janitor.Candidates(ctx)
	leases, leaseErr := e.deps.Network.Leases()
	records, err := e.loadRecords()
	if err != nil {
		return nil, err
	}
	findings := append(records.findings, records.leaks(candidates, leases)...)
	for _, p := range pending {
		findings = append(findings, Finding{Problem: FindingUnknown, What: p.What, Detail: p.Error})
	}
	if leaseErr != nil {
		findings = append(findings, Finding{Problem: FindingUnknown, What: kindAddress,
			Detail: strings.ReplaceAll(leaseErr.Error(), "\n", "; ")})
	}
	for _, p := range records.pods {
		findings = append(findings, e.checkPod(ctx, p, candidates[p.ID])...)
		for _, c := range records.containers[p.ID] {
			findings = append(findings, e.checkContainer(ctx, c, candidates[c.ID])...)
		}
	}
	slices.SortFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Problem, b.Problem), cmp.Compare(a.What, b.What), cmp.Compare(a.ID, b.ID))
	})
	return findings, ctx.Err()
}

// leaks returns the resources and addresses without a record.
func (s recordSet) leaks(candidates map[string][]garbage.Kind, leases map[string][]string) []Finding {
	var findings []Finding
	for id, kinds := range candidates {
		for _, kind := range kinds {
			if !s.claimed[id] {
				findings = append(findings, Finding{Problem: FindingLeak, What: kind.What, ID: id})
			}
		}
	}
	for id, addresses := range leases {
		if !s.claimed[id] {
			detail := strings.Join(addresses, " ")
			findings = append(findings, Finding{Problem: FindingLeak, What: kindAddress, ID: id, Detail: detail})
		}
	}
	return findings
}

// loadRecords reads all records.
func (e *Engine) loadRecords() (recordSet, error) {
	s := recordSet{containers: map[string][]*Container{}, claimed: map[string]bool{}}
	ids, err := checkpoint.List(e.paths.Pods())
	if err != nil {
		return s, err
	}
	for _, id := range ids {
		s.claimed[id] = true
		dir := filepath.Join(e.paths.Pods(), id, record.ContainersDir)
		containers, err := checkpoint.List(dir)
		if err != nil {
			s.unreadable("containers", id, err)
		}
		for _, c := range containers {
			s.claimed[c] = true
		}
		p, err := e.readPod(id)
		if err != nil {
			s.unreadable("pod", id, err)
			continue
		}
		p.life.End(nil) // it is only read
		s.pods = append(s.pods, p)
		for _, id := range containers {
			c, err := e.readContainer(p, id)
			if err != nil {
				s.unreadable("container", id, err)
				continue
			}
			c.life.End(nil)
			s.containers[p.ID] = append(s.containers[p.ID], c)
		}
	}
	return s, nil
}

func (s *recordSet) unreadable(what, id string, err error) {
	s.findings = append(s.findings, Finding{Problem: FindingRecord, What: what, ID: id, Detail: err.Error()})
}

// missing returns the wanted kinds that are not among the resources of one id.
func missing(id string, found []garbage.Kind, wanted ...string) []Finding {
	var findings []Finding
	for _, what := range wanted {
		if !slices.ContainsFunc(found, func(k garbage.Kind) bool { return k.What == what }) {
			findings = append(findings, Finding{Problem: FindingMissing, What: what, ID: id})
		}
	}
	return findings
}

// checkPod returns the missing parts of a ready pod of this boot.
func (e *Engine) checkPod(ctx context.Context, p *Pod, found []garbage.Kind) []Finding {
	if p.Status().State != record.PodReady || p.BootID != e.node.BootID {
		return nil
	}
	wanted := []string{garbage.PodDir}
	if p.Netns != "" {
		wanted = append(wanted, garbage.Netns, garbage.Attachment)
	}
	if p.HasInfra() {
		wanted = append(wanted, garbage.Container)
	}
	findings := missing(p.ID, found, wanted...)
	for _, name := range e.files.Missing(p.ID, p.Config) {
		findings = append(findings, Finding{Problem: FindingMissing, What: "pod file " + name, ID: p.ID})
	}
	if p.HasInfra() && len(findings) == 0 {
		findings = append(findings, e.checkProcess(ctx, p, p.ID)...)
	}
	return findings
}

// checkContainer returns the missing parts of a created container.
func (e *Engine) checkContainer(ctx context.Context, c *Container, found []garbage.Kind) []Finding {
	switch s := c.Status(); {
	case s.State == record.ContainerCreating, c.pod.BootID != e.node.BootID, c.startFails():
		return nil
	case s.State == record.ContainerExited:
		return missing(c.ID, found, garbage.Rootfs)
	}
	findings := missing(c.ID, found, garbage.Container, garbage.Rootfs)
	if len(findings) > 0 {
		return findings
	}
	return e.checkProcess(ctx, c.pod, c.ID)
}

// checkProcess queries the runtime for a process that should run.
func (e *Engine) checkProcess(ctx context.Context, p *Pod, id string) []Finding {
	rt, err := p.handler.Runtime()
	if err != nil {
		return []Finding{{Problem: FindingUnknown, What: "process", ID: id, Detail: err.Error()}}
	}
	ctx, cancel := lifecycle.WithTimeout(ctx, observeTimeout, "no answer within %v")
	defer cancel()
	state, err := rt.State(ctx, id)
	switch {
	case err != nil:
		return []Finding{{Problem: FindingUnknown, What: "process", ID: id, Detail: err.Error()}}
	case state.Status == oci.Absent, state.Status == oci.Stopped:
		return []Finding{{FindingMissing, "process", id, "the runtime says " + string(state.Status)}}
	case state.NoMonitor:
		return []Finding{{FindingMissing, "monitor", id, oci.ErrNoMonitor.Error()}}
	}
	return nil
}

// FreeAddress frees the addresses of a pod id for which Check found no record.
func (e *Engine) FreeAddress(ctx context.Context, id string) error {
	return undo(ctx, e, func(ctx context.Context) error {
		return e.janitor.Machine.Abandon(ctx, id)
	})
}

// Address reports whether FreeAddress can repair the finding.
func (f Finding) Address() bool { return f.Problem == FindingLeak && f.What == kindAddress }

// Remedy describes the repair of the finding, "" for none.
func (f Finding) Remedy() string {
	if f.Problem != FindingLeak {
		return ""
	}
	return map[string]string{
		garbage.Container:  "kill its processes, and delete it by its runtime",
		garbage.Cgroup:     "kill the processes in it, and remove it",
		garbage.Mount:      "unmount it",
		garbage.Rootfs:     "unmount and delete it",
		garbage.Attachment: "detach it by the CNI plugins (DEL)",
		garbage.Netns:      "unpin it",
		garbage.PodDir:     "unmount and delete it",
		kindAddress:        "free it by the CNI plugins (daemon stopped)",
	}[f.What]
}
