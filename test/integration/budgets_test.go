package integration

import (
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// budgetUsage is one of the budgets in the verbose Status.
type budgetUsage struct {
	Name    string `json:"name"`
	Limit   int64  `json:"limit"`
	InUse   int64  `json:"in_use"`
	Highest int64  `json:"highest"`
	Refused int64  `json:"refused"`
}

// budget returns the state of a budget.
func (k *kubelet) budget(name string) budgetUsage {
	k.Helper()
	r, err := k.Runtime.Status(k.ctx(), &cri.StatusRequest{Verbose: true})
	k.ok("Status", err)
	var engine struct {
		Budgets []budgetUsage `json:"budgets"`
	}
	if err := json.Unmarshal([]byte(r.GetInfo()["engine"]), &engine); err != nil {
		k.Fatal(err)
	}
	for _, u := range engine.Budgets {
		if u.Name == name {
			return u
		}
	}
	k.Fatalf("no budget %q in the status", name)
	return budgetUsage{}
}

// peakMemory is the largest resident memory of podd since its start, in MiB.
func (k *kubelet) peakMemory() int {
	k.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(k.Pid()) + "/status")
	k.ok("status of the daemon", err)
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindStringSubmatch(string(text))
	kib, err := strconv.Atoi(m[1])
	k.ok("VmHWM", err)
	return kib >> 10
}

// TestExecOutputBudget: 20 commands in two pods print 16 MB twice at the same time. The output that podd keeps stays
// within the budget, replies that were cut say so, a command that prints little is not affected, and in the end nothing
// is in use.
func TestExecOutputBudget(t *testing.T) {
	t.Parallel()
	k := start(t)
	_, a := k.sleeper()
	_, b := k.sleeper()
	var cut, whole sync.Map
	var all sync.WaitGroup
	// Each sleeps, so that the output of all of them is kept at the same time.
	const print = "head -c 16000000 /dev/zero; head -c 16000000 /dev/zero >&2; sleep 6"
	for i := range 20 {
		all.Go(func() {
			r, err := k.Runtime.ExecSync(k.ctx(), &cri.ExecSyncRequest{
				ContainerId: []string{a, b}[i%2], Cmd: []string{"sh", "-c", print}, Timeout: 120,
			})
			switch {
			case err != nil:
				k.Errorf("ExecSync: %v", err)
			case len(r.Stdout) < 64<<10 || r.ExitCode != 0:
				k.Errorf("ExecSync: %d bytes, exit code %d, want at least 64 KiB and 0", len(r.Stdout), r.ExitCode)
			case strings.HasSuffix(string(r.Stderr), "see `podd status`\n"):
				cut.Store(i, true)
			default:
				whole.Store(i, true)
			}
		})
	}
	for range 10 {
		if got := k.exec(a, "head -c 60000 /dev/zero"); len(got) != 60000 {
			k.Errorf("a small command: %d bytes, want 60000", len(got))
		}
	}
	all.Wait()
	u := k.budget("output of ExecSync")
	k.Logf("%d replies were cut, %d not; budget %+v; podd needed %d MiB at most", size(&cut), size(&whole), u,
		k.peakMemory())
	if u.Highest == 0 || u.Highest > 64<<20 {
		k.Errorf("highest use = %d, want above 0 and at most %d", u.Highest, 64<<20)
	}
	if u.Refused == 0 || size(&cut) == 0 {
		k.Errorf("%d refused, %d replies say that they were cut, want some", u.Refused, size(&cut))
	}
	k.eventually("the budget is free", func() bool { return k.budget("output of ExecSync").InUse == 0 })
}

func size(m *sync.Map) (n int) {
	m.Range(func(any, any) bool { n++; return true })
	return n
}
