package budget

import (
	"math"

	"golang.org/x/sync/semaphore"
)

// Table has all budgets of a podd. It is constructed here only.
type Table struct {
	// ExecOutput is the output that ExecSyncs keep in memory until their replies are sent, beyond the first
	// oci.FreeOutput bytes of each stream. podd needs up to three times as much: buffers grow by doubling, and a reply
	// is encoded before it is sent.
	ExecOutput *Pool
	// Sessions are streaming sessions: exec, attach and port-forward.
	Sessions *Pool
	// PendingConnections are connections to the streaming server that are not sessions yet. When all are in use, a new
	// one replaces the oldest one of the user with most of them.
	PendingConnections *Pool
	// Forwards are forwarded connections. Each needs a descriptor and about 100 KB.
	Forwards *Pool
	// Dials are forwarded connections that are being established. More wait.
	Dials *Pool

	// Checkpoints are checkpoints of pods and containers in progress, which fill disks. More wait.
	Checkpoints *Pool

	// Configurations are the requests of pods and containers that exist, and the configurations of their images: podd
	// keeps them in memory and in records, and runtimes keep them in the run directory as config.json.
	Configurations Reserved
	// Commands are the descriptions of the commands that run by exec, which are in the run directory until their ends.
	Commands Reserved
	// Answers are the parts of those requests that are in lists and statuses, which must fit into messages.
	Answers Reserved
	// ImageMounts are images that containers have as volumes: each is a mount of the node.
	ImageMounts Reserved

	usages []func() Usage
}

// Parts that each pod has for itself, in bytes and mounts.
const (
	OwnConfigurations = 256 << 10
	OwnCommands       = 256 << 10
	OwnAnswers        = 24 << 10
	OwnImageMounts    = 4
)

// New returns the table of budgets with the sizes that operators can configure: streaming sessions, in all and of each
// pod, and pending streaming connections.
func New(sessions, sessionsPerPod, pendingConnections int) *Table {
	t := &Table{}
	t.ExecOutput = t.pool(Usage{
		Name: "output of ExecSync", Unit: Bytes, Limit: 64 << 20, PerOwner: 32 << 20, Owner: "pod",
	})
	t.Sessions = t.pool(Usage{
		Name: "streaming sessions", Unit: Sessions, Limit: int64(sessions),
		PerOwner: int64(sessionsPerPod), Owner: "pod",
	})
	t.PendingConnections = t.pool(Usage{
		Name: "pending streaming connections", Unit: Connections, Limit: int64(pendingConnections),
	})
	t.Forwards = t.pool(Usage{
		Name: "forwarded connections", Unit: Connections, Limit: 2048, PerOwner: 512, Owner: "pod",
	})
	t.Dials = t.pool(Usage{
		Name: "forwarded connections being established", Unit: Connections, Limit: 1024, PerOwner: 32, Owner: "pod",
	})
	t.Checkpoints = t.pool(Usage{Name: "checkpoints at once", Unit: Checkpoints, Limit: 4})
	t.Configurations = t.reserved(OwnConfigurations, Usage{
		Name: "configurations", Unit: Bytes, Limit: 64 << 20, PerOwner: 8 << 20, Owner: "pod",
	})
	t.Commands = t.reserved(OwnCommands, Usage{
		Name: "commands of exec", Unit: Bytes, Limit: 32 << 20, PerOwner: 8 << 20, Owner: "pod",
	})
	t.Answers = t.reserved(OwnAnswers, Usage{
		Name: "lists and statuses", Unit: Bytes, Limit: 10 << 20, PerOwner: 1 << 20, Owner: "pod",
	})
	t.ImageMounts = t.reserved(OwnImageMounts, Usage{
		Name: "image volumes", Unit: Mounts, Limit: 1024, PerOwner: 128, Owner: "pod",
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
	t.usages = append(t.usages, p.Usage)
	return p
}

// reserved returns a budget of which each owner has own for itself. Only the shared part is in the table's usages.
func (t *Table) reserved(own int64, u Usage) Reserved {
	part := Usage{Name: u.Name, Unit: u.Unit, Limit: math.MaxInt64, PerOwner: own, Owner: u.Owner}
	return Reserved{own: (&Table{}).pool(part), shared: t.pool(u)}
}
