package budget

import "golang.org/x/sync/semaphore"

// Sizes are the sizes that operators can configure; the default if they are not positive.
type Sizes struct {
	Sessions, SessionsPerPod, PendingConnections int
}

// Default sizes.
const (
	DefaultSessions           = 1024
	DefaultSessionsPerPod     = 256
	DefaultPendingConnections = 256
)

// Table has all budgets of a podd. It is constructed here only, and passed to the packages that enforce it.
type Table struct {
	// ExecOutput is the output that ExecSyncs keep in memory until their replies are sent, beyond the first
	// ExecOutputFree bytes of each stream. podd needs up to three times as much: buffers grow by doubling, and a reply is
	// encoded before it is sent.
	ExecOutput *Pool
	// Sessions are streaming sessions: exec, attach and port-forward.
	Sessions *Pool
	// PendingConnections are connections to the streaming server that are no session yet. When all are in use, a new one
	// replaces the oldest one of the user with most of them.
	PendingConnections *Pool
	// Forwards are forwarded connections. Each needs a descriptor and about 100 KB.
	Forwards *Pool
	// Dials are forwarded connections that are being established. More wait.
	Dials *Pool

	// Checkpoints are checkpoints of pods and containers in progress, which fill disks. More wait.
	Checkpoints *Pool

	usages []func() Usage
}

// ExecOutputFree is how much of each stream an ExecSync keeps without the budget. The kubelet uses 10 KiB of a probe's
// output.
const ExecOutputFree = 64 << 10

// New returns the table of budgets with the default sizes.
func New() *Table { return NewSized(Sizes{}) }

// NewSized returns the table of budgets.
func NewSized(s Sizes) *Table {
	t := &Table{}
	t.ExecOutput = t.pool(Usage{
		Name: "output of ExecSync", Unit: Bytes, Limit: 64 << 20, PerOwner: 32 << 20, Owner: "pod",
	})
	t.Sessions = t.pool(Usage{
		Name: "streaming sessions", Unit: Sessions, Limit: orDefault(s.Sessions, DefaultSessions),
		PerOwner: orDefault(s.SessionsPerPod, DefaultSessionsPerPod), Owner: "pod",
	})
	t.PendingConnections = t.pool(Usage{
		Name: "pending streaming connections", Unit: Connections,
		Limit: orDefault(s.PendingConnections, DefaultPendingConnections),
	})
	t.Forwards = t.pool(Usage{
		Name: "forwarded connections", Unit: Connections, Limit: 2048, PerOwner: 512, Owner: "pod",
	})
	t.Dials = t.pool(Usage{
		Name: "forwarded connections being established", Unit: Connections, Limit: 1024, PerOwner: 32, Owner: "pod",
	})
	t.Checkpoints = t.pool(Usage{Name: "checkpoints at once", Unit: Checkpoints, Limit: 4})
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
	t.usages = append(t.usages, p.Usage)
	return p
}

// limit adds a Limit, for the constructor.
func (t *Table) limit(name, unit string, most int64) *Limit {
	l := &Limit{name: name, unit: unit, limit: most}
	t.usages = append(t.usages, l.Usage)
	return l
}

func orDefault(n, standard int) int64 {
	if n <= 0 { // the configuration refuses negative ones
		n = standard
	}
	return int64(n)
}
