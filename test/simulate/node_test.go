package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/status"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/budget"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/test/simulate/kubelet"
)

// podd is one process of podd: an engine, and the connection of its clients, which ends with it.
type podd struct {
	*calls
	e      *sandbox.Engine
	link   *link
	deps   sandbox.Deps
	conn   context.Context
	hangUp context.CancelFunc
	// events is what a subscriber has got since the first list.
	events *events
	// recovered is closed once every pod and container was compared with the machine.
	recovered chan struct{}
}

func (p *podd) isRecovered() bool {
	select {
	case <-p.recovered:
		return true
	default:
		return false
	}
}

// complete reports whether p lists all that is on record.
func (p *podd) complete() bool { return p.isRecovered() && len(p.e.Troubles()) == 0 }

// node runs one podd after the other on a machine.
type node struct {
	w *world

	mu  sync.Mutex
	now *podd // nil while none serves
}

func (n *node) podd() *podd {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now
}

func (n *node) set(p *podd) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now = p
}

// run starts podd, again whenever it was killed or stopped, until ctx ends. Between two the power may fail.
func (n *node) run(ctx context.Context) {
	for i := 1; ; i++ {
		r := n.w.roll("podd")
		p := n.start(r.IntN(1500)+20, r.IntN(4) == 0)
		stop := time.NewTimer(time.Duration(60+r.IntN(600))*time.Second + jitter(r))
		select {
		case <-p.dead:
		case <-stop.C:
			if n.w.may("stop") && r.IntN(2) == 0 {
				n.w.log("podd is stopped")
				n.set(nil)
				p.hangUp()
				n.close(p)
				p.kill()
				break
			}
			if !n.w.isFaulty() {
				select {
				case <-p.dead:
				case <-ctx.Done():
				}
			}
			p.kill()
		case <-ctx.Done():
		}
		stop.Stop()
		n.set(nil)
		p.kill()
		p.hangUp()
		n.close(p)
		n.w.history.forget(n.w.disk.stale)
		if ctx.Err() != nil {
			return
		}
		if n.w.may("power") && r.IntN(4) == 0 {
			n.powerLoss()
		}
		n.w.pause(ctx, "restart", time.Duration(r.IntN(20000))*time.Millisecond)
		for n.w.may("exit") && r.IntN(2) == 0 {
			n.w.accident(r)
		}
	}
}

// close waits until nothing of p runs.
func (n *node) close(p *podd) {
	if p.e == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := p.e.Close(ctx); err != nil {
		n.w.violated("Stop ends", "Close of the engine: %v", err)
	}
}

func (n *node) powerLoss() {
	n.w.log("the power fails")
	if err := n.w.m.Reboot(); err != nil {
		n.w.t.Error(err)
	}
	n.w.disk.lose()
	n.w.mu.Lock()
	n.w.boot++
	n.w.mu.Unlock()
}

// start starts a podd that is killed after about so many outside calls. It may be dead when start returns.
func (n *node) start(fuse int, slow bool) *podd {
	w := n.w
	c := &calls{w: w, dead: make(chan struct{}), fuse: fuse, slow: slow}
	p := &podd{calls: c, recovered: make(chan struct{})}
	p.conn, p.hangUp = context.WithCancel(context.Background())
	w.log("podd starts")
	deps := n.deps(p.calls)
	e, err := sandbox.New(w.node(), sandbox.DefaultConfig(), deps)
	if err != nil {
		w.t.Fatal(err)
	}
	p.e, p.deps = e, deps
	if err := e.Recover(p.conn); err != nil {
		w.t.Errorf("Recover = %v", err)
	}
	w.pause(context.Background(), "serve", time.Millisecond)
	if p.isDead() {
		return p
	}
	p.link = newLink(w, p)
	p.events = subscribe(w, p)
	go func() {
		_ = e.WaitRecovered(p.conn)
		close(p.recovered)
	}()
	go e.RunGC(p.conn)
	n.set(p)
	w.log("podd serves")
	return p
}

func (w *world) node() sandbox.Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return sandbox.Node{
		BootID: fmt.Sprint("boot-", w.boot), PauseRootfs: "/pause", SystemdCgroup: true,
		Layout: record.Layout{
			Root: filepath.Join(w.m.Dir, "root"), Run: filepath.Join(w.m.Dir, "run"), NetnsDir: w.m.NetnsDir,
		},
	}
}

func (n *node) deps(c *calls) sandbox.Deps {
	m := n.w.m
	namespaces, network, images := m.Namespaces.Reopen(), m.Network.Reopen(), m.Images.Reopen()
	runc := m.Runtimes["runc"].Reopen()
	namespaces.Before, namespaces.After = c.before, c.after
	network.Before, network.After = c.before, c.after
	images.Before, images.After = c.before, c.after
	runc.Before, runc.After = c.before, c.after
	cdi, err := host.NewCDI(nil)
	if err != nil {
		n.w.t.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	if *verbose {
		log.AddHook(poddLog{n.w})
	}
	return sandbox.Deps{
		Budgets: budget.New(1, 1, 1), Records: records{d: n.w.disk, c: c},
		Namespaces: namespaces, Network: network, Images: images, Mounter: m.Mounter(c.before, c.after),
		Runtimes: map[string]sandbox.Runtime{"runc": runc},
		Facts:    spec.Facts{Arch: "amd64", Capabilities: []string{"CAP_CHOWN"}}, CDI: cdi, Log: log,
	}
}

// poddLog puts the log of podd into that of the world.
type poddLog struct{ w *world }

func (poddLog) Levels() []logrus.Level { return logrus.AllLevels }

func (l poddLog) Fire(e *logrus.Entry) error {
	l.w.log("podd: %s: %s %v %v %v", e.Level, e.Message, e.Data["pod"], e.Data["container"], e.Data["error"])
	return nil
}

// harm makes containers exit and the disk fail, until ctx ends.
func (n *node) harm(ctx context.Context) {
	w := n.w
	for w.pause(ctx, "harm", time.Second) {
		r := w.roll("harm")
		if !w.pause(ctx, "harm again", time.Duration(r.IntN(20))*time.Second) || !w.isFaulty() {
			return
		}
		switch i := r.IntN(12); {
		case i == 0 && w.may("disk"):
			w.disk.setFault(syscall.ENOSPC)
		case i == 1 && w.may("disk"):
			w.disk.setFault(syscall.EIO)
		case i < 6:
			w.disk.setFault(nil)
		case i == 6 && w.may("reload"):
			n.reload(r)
		case i > 6 && w.may("exit"):
			w.accident(r)
		}
	}
}

// reload changes keys of the configuration that are read again while podd runs.
func (n *node) reload(r *rand.Rand) {
	p, cfg := n.podd(), sandbox.DefaultConfig()
	if p == nil || p.isDead() {
		return
	}
	cfg.CreateTimeout = time.Duration(5+r.IntN(300)) * time.Second
	cfg.KillTimeout = time.Duration(1+r.IntN(60)) * time.Second
	n.w.log("podd reloads: create_timeout %v, kill_timeout %v", cfg.CreateTimeout, cfg.KillTimeout)
	if err := p.e.Reconfigure(cfg, p.deps.Runtimes); err != nil {
		n.w.t.Errorf("Reconfigure = %v", err)
	}
}

// accident ends a container, or deletes a file of a pod, as clean-up programs do.
func (w *world) accident(r *rand.Rand) {
	ids := w.sorted(w.m.Runtimes["runc"].Alive())
	if len(ids) == 0 {
		return
	}
	id := ids[r.IntN(len(ids))]
	if r.IntN(6) == 0 {
		w.truth.spoil(w.m.Runtimes["runc"].Alive()[id])
		return
	}
	x := oci.Exit{Code: int32(1 + r.IntN(100)), Known: true, At: time.Now()}
	if r.IntN(4) == 0 {
		x.Code, x.OOM = 137, true
	}
	w.log("exit: %s with %d", id, x.Code)
	w.m.Runtimes["runc"].Exit(id, x)
}

var errDown = errors.New("podd does not answer")

// Call makes a call of podd. One whose caller gave up goes on in podd, as in gRPC, and its answer is lost.
func (p *podd) Call(timeout time.Duration, what string, f func(context.Context, kubelet.Client) error) error {
	w := p.w
	if p.isDead() {
		return errDown
	}
	w.log("request: %s", what)
	ctx, cancel := context.WithTimeout(p.conn, timeout+jitter(w.roll("timeout "+w.rename(what))))
	done := make(chan error, 1)
	back := jitter(w.roll("answer " + w.rename(what))) // not at the moment in which podd is killed
	go func() {
		defer cancel()
		if r := w.roll("late " + w.rename(what)); w.may("late") && r.IntN(50) == 0 {
			time.Sleep(time.Duration(r.IntN(60))*time.Second + jitter(r))
			w.log("late: %s", what)
		}
		if p.isDead() || ctx.Err() != nil { // selects of podd would choose by chance
			return
		}
		err := f(ctx, p.cri())
		select {
		case <-time.After(back):
			done <- err
		case <-ctx.Done():
		}
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done: // cancel is called after the answer
		default:
			err = status.FromContextError(context.Cause(ctx)).Err()
		}
	}
	if p.isDead() || p.conn.Err() != nil {
		err = errDown
	}
	if err != nil {
		w.log("answer: %s: %v", what, err)
	} else {
		w.log("answer: %s", what)
	}
	return err
}

// List makes a call that podd answers from memory.
func (p *podd) List(f func(context.Context, kubelet.Client) error) error {
	if p.isDead() {
		return errDown
	}
	began := time.Now()
	err := f(p.conn, p.cri())
	if took := time.Since(began); err != nil || took > 0 {
		p.w.violated(ruleList, "after %v: %v", took, err)
	}
	return err
}

// The methods of kubelet.World.

func (n *node) Roll(key string) *rand.Rand { return n.w.roll(key) }

func (n *node) Pause(ctx context.Context, key string, d time.Duration) bool {
	return n.w.pause(ctx, n.w.rename(key), d)
}

func (n *node) Log(format string, args ...any) { n.w.log(format, args...) }

func (n *node) IsFaulty() bool { return n.w.isFaulty() }

func (n *node) May(kind string) bool { return n.w.may(kind) }

func (n *node) Told(what kubelet.What, o kubelet.Object) { n.w.truth.told(what, o) }

func (n *node) Runtime() kubelet.Runtime {
	if p := n.podd(); p != nil {
		return p
	}
	return nil
}
