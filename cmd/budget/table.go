package budget

import "golang.org/x/sync/semaphore"

// Table has all budgets of a podd. It is constructed here only, and passed to the packages that enforce it.
type Table struct {
	// ExecOutput is the output that ExecSyncs keep in memory until their replies are sent, beyond the first
	// ExecOutputFree bytes of each stream. podd needs up to three times as much: buffers grow by doubling, and a reply is
	// encoded before it is sent.
	ExecOutput *Pool
	// Dials are forwarded connections that are being established. More wait.
	Dials *Pool

	usages []func() Usage
}

// ExecOutputFree is how much of each stream an ExecSync keeps without the budget. The kubelet uses 10 KiB of a probe's
// output.
const ExecOutputFree = 64 << 10

// New returns the table of budgets.
func New() *Table {
	t := &Table{}
	t.ExecOutput = t.pool(Usage{
		Name: "output of ExecSync", Unit: Bytes, Limit: 64 << 20, PerOwner: 32 << 20, Owner: "pod",
	})
	t.Dials = t.pool(Usage{
		Name: "forwarded connections being established", Unit: Connections, Limit: 1024, PerOwner: 32, Owner: "pod",
	})
	return t
}

// Usages returns the state of every budget, in the order of the table.
func (t *Table) Usages() []Usage {
	all := make([]Usage, len(t.usages))
	for i, usage := range t.usages {
		all[i] = usage()
	}
	return all
}

func (t *Table) pool(u Usage) *Pool {
	u.PerOwner = min(u.PerOwner, u.Limit)
	p := &Pool{size: u, all: semaphore.NewWeighted(u.Limit), owners: map[string]*share{}}
	t.usages = append(t.usages, p.usage)
	return p
}

// limit adds a Limit, for the constructor.
func (t *Table) limit(name, unit string, most int64) *Limit {
	l := &Limit{name: name, unit: unit, limit: most}
	t.usages = append(t.usages, l.usage)
	return l
}
