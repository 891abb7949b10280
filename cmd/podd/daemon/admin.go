package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/history"
	"github.com/podd-project/podd/cmd/podd/state"
	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/budget"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/streaming"
)

// serveAdmin serves the admin API until ctx ends. The daemon runs even if the socket cannot be opened.
func (d *daemon) serveAdmin(ctx context.Context, n *Node) {
	log := d.log.WithField("socket", admin.SocketPath(d.cfg.Run))
	l, err := state.Listen(admin.SocketPath(d.cfg.Run), state.RootSocketMode, d.log)
	if err != nil {
		log.WithError(err).Error("failed to serve the admin API")
		return
	}
	api := adminNode{Engine: n.Engine, d: d, n: n, ctx: ctx, started: time.Now()}
	d.background.Go(func() {
		if err := admin.Serve(ctx, l, api, d.log); err != nil {
			log.WithError(err).Error("failed to serve the admin API, giving up")
		}
	})
}

// adminNode implements admin.Node, Check, GC and Operations with the engine.
type adminNode struct {
	*sandbox.Engine
	d *daemon
	n *Node
	// ctx is the daemon's: a reload goes on if its caller leaves.
	ctx     context.Context
	started time.Time
}

func (a adminNode) Budgets() []budget.Usage { return a.d.budgets.Usages() }

// Pulls returns the pulls in progress.
func (a adminNode) Pulls() []image.PullProgress {
	pulls, _ := a.n.Images.Pulls()
	return pulls
}

func (a adminNode) Sessions() []streaming.SessionInfo { return a.n.streams.Sessions() }

// VerifyImages reads all images. With mark, damaged ones are no longer listed.
func (a adminNode) VerifyImages(ctx context.Context, mark bool) ([]sandbox.Finding, error) {
	return a.n.VerifyImages(ctx, mark)
}

// History returns operations that have ended.
func (a adminNode) History(q history.Query) ([]operation.Operation, error) {
	if a.d.observers.history == nil {
		return nil, errors.New("the history could not be opened when podd was started, see its log")
	}
	return a.d.observers.history.List(q)
}

// Reload rereads the files of the configuration.
func (a adminNode) Reload() (admin.Reload, error) { return a.d.reload(a.ctx, a.n) }

// configuration describes the configuration in force.
func (a adminNode) configuration() admin.Configuration {
	g := a.d.current.Load()
	c := admin.Configuration{Generation: g.number, Loaded: g.loaded.UTC()}
	if g.failed != nil {
		c.Error = g.failed.Error()
	}
	return c
}

// LogLevel returns the level of logrus' standard logger, which the daemon uses.
func (a adminNode) LogLevel() string { return logrus.GetLevel().String() }

// SetLogLevel returns an error for a level that the configuration would refuse, too.
func (a adminNode) SetLogLevel(level string) error {
	parsed, err := logrus.ParseLevel(level)
	if err != nil || parsed < logrus.ErrorLevel {
		return fmt.Errorf("%q is not one of trace, debug, info, warning, error", level)
	}
	logrus.SetLevel(parsed)
	return nil
}

// Status returns the status of the node and its pods.
func (a adminNode) Status(ctx context.Context, pod string) (admin.Status, error) {
	e := a.n.Engine
	s := admin.Status{
		Version: a.d.version, Host: hostname(), Pid: os.Getpid(), Started: a.started.UTC(), Configuration: a.configuration(),
		Operations: e.Operations(), Troubles: e.Troubles(),
		Budgets: a.Budgets(), Sessions: a.Sessions(), Disk: a.space(), NRI: a.n.plugins.Status(),
	}
	s.Pulls, s.FailedPulls = a.n.Images.Pulls()
	resp, err := a.n.server.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return s, err
	}
	for _, c := range resp.GetStatus().GetConditions() {
		s.Conditions = append(s.Conditions,
			admin.Condition{Type: c.GetType(), Ready: c.GetStatus(), Message: c.GetMessage()})
	}
	if pod != "" {
		p, err := findPod(e, pod)
		if err != nil {
			return s, err
		}
		s.Pods = []admin.Pod{podDetails(ctx, e, p)}
		return s, nil
	}
	for _, p := range allPods(e) {
		s.Pods = append(s.Pods, podStatus(e, p))
	}
	s.SetProblems(a.d.observers.starts.list(), time.Now())
	return s, nil
}

func hostname() string {
	name, _ := os.Hostname() // only shown
	return name
}

// allPods are the pods that the CRI lists, and those that are being created.
func allPods(e *sandbox.Engine) []*sandbox.Pod {
	pods := e.Pods()
	for _, o := range e.Operations() {
		if p, err := e.Pod(o.Pod); err == nil && p.Status().State == record.PodCreating && !slices.Contains(pods, p) {
			pods = append(pods, p)
		}
	}
	return pods
}

// findPod returns the pod whose id begins with name, or the one that is called that, namespace/name: of several the one
// that is ready, for the kubelet keeps former ones.
func findPod(e *sandbox.Engine, name string) (*sandbox.Pod, error) {
	if !strings.Contains(name, "/") {
		return e.Pod(name)
	}
	var found, ready []*sandbox.Pod
	for _, p := range allPods(e) {
		if podName(p) != name {
			continue
		}
		found = append(found, p)
		if p.Status().State == record.PodReady {
			ready = append(ready, p)
		}
	}
	if len(ready) == 1 {
		return ready[0], nil
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("no pod is called %s: %w", name, errdefs.ErrNotFound)
	case 1:
		return found[0], nil
	default:
		return nil, fmt.Errorf("%d pods are called %s, give the beginning of an id: %w", len(found), name,
			errdefs.ErrInvalidArgument)
	}
}

// podStatus describes a pod and its containers.
func podStatus(e *sandbox.Engine, p *sandbox.Pod) admin.Pod {
	out := admin.Pod{
		ID: p.ID, Name: podName(p), State: string(p.Status().State), Created: p.CreatedAt.UTC(),
		Containers: []admin.Container{},
	}
	for _, c := range e.ContainersOf(p) {
		s := c.Status()
		out.Containers = append(out.Containers, admin.Container{
			ID: c.ID, Name: c.Config.GetMetadata().GetName(), State: string(s.State),
			Image:   cmp.Or(c.Config.GetImage().GetUserSpecifiedImage(), c.Config.GetImage().GetImage()),
			Attempt: c.Config.GetMetadata().GetAttempt(), Created: c.CreatedAt.UTC(), Finished: s.FinishedAt.UTC(),
			Reason: s.Reason, Message: s.Message, ExitCode: s.ExitCode, Unmonitored: c.Unmonitored(),
		})
	}
	return out
}

// podDetails is podStatus with the last operations.
func podDetails(ctx context.Context, e *sandbox.Engine, p *sandbox.Pod) admin.Pod {
	out := podStatus(e, p)
	out.Operations, out.Handler, out.Cgroup = p.Operations(), p.Handler, p.Config.GetLinux().GetCgroupParent()
	out.IPs, out.Reason = p.Status().IPs, p.Status().Reason
	for _, err := range sandbox.CheckpointObstacles(ctx, e, p) {
		out.Obstacles = append(out.Obstacles, err.Error())
	}
	for i := range out.Containers {
		if c, err := e.Container(out.Containers[i].ID); err == nil { // it may have been removed since
			out.Containers[i].Operations = c.Operations()
		}
	}
	return out
}

// maxLog bounds the part of a log that is shown, in bytes.
const maxLog = 8 << 10

// Log returns the last lines of a container's log.
func (a adminNode) Log(container string) (string, error) {
	c, err := a.n.Engine.Container(container)
	if err != nil || c.View().LogPath() == "" {
		return "", err
	}
	return c.LogFile().Tail(maxLog)
}

// podName returns namespace/name.
func podName(p *sandbox.Pod) string {
	return p.Config.GetMetadata().GetNamespace() + "/" + p.Config.GetMetadata().GetName()
}
