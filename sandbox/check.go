package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/record"
)

// The kinds of Finding.
const (
	// FindingLeak: it is on the machine and in no record.
	FindingLeak = "leak"
	// FindingMissing: a record says that it is on the machine.
	FindingMissing = "missing"
	// FindingRecord: a record cannot be read.
	FindingRecord = "record"
	// FindingUnknown: the machine could not be asked.
	FindingUnknown = "unknown"
)

// whatAddress is an address that is given to a pod that no record knows. Unlike other garbage it may be that of another
// container engine on the same network, so it is freed on demand only.
const whatAddress = "address"

// Finding is one thing in which records and machine disagree.
type Finding struct {
	Problem string `json:"problem"`
	What    string `json:"what"`
	ID      string `json:"id,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// census is what the records on disk say.
type census struct {
	pods       []*Pod
	containers map[string][]*Container // by pod
	claimed    map[string]bool         // ids of pods and containers, readable or not
	findings   []Finding
}

// Check compares the records on disk with the machine, and changes nothing. It needs no Recover before it and may run
// beside everything else: the machine is looked at first, so what is made meanwhile is in the records by then. What is
// being removed meanwhile is found once, and not twice.
func (e *Engine) Check(ctx context.Context) ([]Finding, error) {
	chores, debts := e.chores(ctx)
	leases, leaseErr := e.Network.Leases()
	found, err := e.takeCensus()
	if err != nil {
		return nil, err
	}
	findings := found.findings
	for _, d := range debts {
		findings = append(findings, Finding{Problem: FindingUnknown, What: d.What, Detail: d.Error})
	}
	for id, kinds := range chores {
		for _, kind := range kinds {
			if !found.claimed[id] {
				findings = append(findings, Finding{Problem: FindingLeak, What: kind.what, ID: id})
			}
		}
	}
	if leaseErr != nil {
		findings = append(findings, Finding{Problem: FindingUnknown, What: whatAddress, Detail: leaseErr.Error()})
	}
	for id, addresses := range leases {
		if !found.claimed[id] {
			findings = append(findings, Finding{Problem: FindingLeak, What: whatAddress, ID: id, Detail: strings.Join(addresses, " ")})
		}
	}
	for _, p := range found.pods {
		findings = append(findings, e.checkPod(ctx, p, chores[p.ID])...)
		for _, c := range found.containers[p.ID] {
			findings = append(findings, e.checkContainer(ctx, c, chores[c.ID])...)
		}
	}
	slices.SortFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Problem, b.Problem), cmp.Compare(a.What, b.What), cmp.Compare(a.ID, b.ID))
	})
	return findings, ctx.Err()
}

// takeCensus reads all records.
func (e *Engine) takeCensus() (census, error) {
	c := census{containers: map[string][]*Container{}, claimed: map[string]bool{}}
	ids, err := checkpoint.List(e.podsDir())
	if err != nil {
		return c, err
	}
	for _, id := range ids {
		c.claimed[id] = true
		p, err := e.readPod(id)
		if err != nil {
			c.findings = append(c.findings, Finding{Problem: FindingRecord, What: "pod", ID: id, Detail: err.Error()})
			c.claimAll(filepath.Join(e.podsDir(), id, containersDir))
			continue
		}
		p.life.end(nil) // it is looked at only
		c.pods = append(c.pods, p)
		e.countContainers(&c, p)
	}
	return c, nil
}

func (e *Engine) countContainers(c *census, p *Pod) {
	ids, err := checkpoint.List(filepath.Join(p.dir, containersDir))
	if err != nil {
		c.findings = append(c.findings, Finding{Problem: FindingRecord, What: "containers", ID: p.ID, Detail: err.Error()})
	}
	for _, id := range ids {
		c.claimed[id] = true
		k, err := e.readContainer(p, id)
		if err != nil {
			c.findings = append(c.findings, Finding{Problem: FindingRecord, What: "container", ID: id, Detail: err.Error()})
			continue
		}
		k.life.end(nil)
		c.containers[p.ID] = append(c.containers[p.ID], k)
	}
}

// claimAll claims what has a directory in dir.
func (c *census) claimAll(dir string) {
	ids, err := checkpoint.List(dir)
	if err != nil {
		c.findings = append(c.findings, Finding{Problem: FindingRecord, What: "containers", ID: filepath.Base(filepath.Dir(dir)), Detail: err.Error()})
	}
	for _, id := range ids {
		c.claimed[id] = true
	}
}

// missing names those of the kinds wanted that are not among the chores of one id.
func missing(id string, chores []garbageKind, wanted ...string) []Finding {
	var findings []Finding
	for _, what := range wanted {
		if !slices.ContainsFunc(chores, func(k garbageKind) bool { return k.what == what }) {
			findings = append(findings, Finding{Problem: FindingMissing, What: what, ID: id})
		}
	}
	return findings
}

// checkPod says what a ready pod of this boot lacks.
func (e *Engine) checkPod(ctx context.Context, p *Pod, chores []garbageKind) []Finding {
	if p.Status().State != record.PodReady || p.BootID != e.cfg.BootID {
		return nil
	}
	wanted := []string{whatPodDir}
	if p.Netns != "" {
		wanted = append(wanted, whatNetns, whatAttachment)
	}
	if p.HasInfra() {
		wanted = append(wanted, whatContainer)
	}
	findings := missing(p.ID, chores, wanted...)
	for _, name := range []string{resolvConfFile, hostnameFile, hostsFile} {
		if _, err := os.Stat(e.podFile(p.ID, name)); errors.Is(err, fs.ErrNotExist) {
			findings = append(findings, Finding{Problem: FindingMissing, What: "pod file " + name, ID: p.ID})
		}
	}
	if p.HasInfra() && len(findings) == 0 {
		findings = append(findings, e.checkProcess(ctx, p, p.ID)...)
	}
	return findings
}

// checkContainer says what a container lacks that was created and has not exited.
func (e *Engine) checkContainer(ctx context.Context, c *Container, chores []garbageKind) []Finding {
	switch s := c.Status(); {
	case s.State == record.ContainerCreating, c.pod.BootID != e.cfg.BootID, c.doomed():
		return nil
	case s.State == record.ContainerExited:
		return missing(c.ID, chores, whatRootfs)
	}
	findings := missing(c.ID, chores, whatContainer, whatRootfs)
	if len(findings) > 0 {
		return findings
	}
	return e.checkProcess(ctx, c.pod, c.ID)
}

// checkProcess asks the runtime for a process that should live.
func (e *Engine) checkProcess(ctx context.Context, p *Pod, id string) []Finding {
	rt, err := e.runtimeOf(p)
	if err != nil {
		return []Finding{{Problem: FindingUnknown, What: "process", ID: id, Detail: err.Error()}}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, settleDeadline, fmt.Errorf("no answer within %v: %w", settleDeadline, context.DeadlineExceeded))
	defer cancel()
	state, err := rt.State(ctx, id)
	switch {
	case err != nil:
		return []Finding{{Problem: FindingUnknown, What: "process", ID: id, Detail: err.Error()}}
	case state.Status == oci.Absent, state.Status == oci.Stopped:
		return []Finding{{Problem: FindingMissing, What: "process", ID: id, Detail: "the runtime says " + string(state.Status)}}
	}
	return nil
}

// FreeAddress gives back the addresses of a container id that Check has found to be in no record.
func (e *Engine) FreeAddress(ctx context.Context, id string) error {
	return e.undo(ctx, func(ctx context.Context) error {
		return e.Network.Abandon(ctx, network.Request{PodID: id, Netns: filepath.Join(e.netnsDir(), id)})
	})
}

// Address tells whether the finding is one for FreeAddress.
func (f Finding) Address() bool { return f.Problem == FindingLeak && f.What == whatAddress }
