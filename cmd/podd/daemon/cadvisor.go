package daemon

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"

	"github.com/podd-project/podd/cmd/podd/cadvisor"
	"github.com/podd-project/podd/cmd/podd/state"
	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/record"
)

// serveCadvisor describes containers to cAdvisor until ctx ends. The daemon runs even if the socket cannot be opened.
func (d *daemon) serveCadvisor(ctx context.Context, n *Node) {
	if !d.cfg.Cadvisor.Enabled() {
		return
	}
	log := d.log.WithField("socket", d.cfg.Cadvisor.Socket)
	l, err := d.listenCadvisor()
	if err != nil {
		log.WithError(err).Error("failed to serve cAdvisor")
		return
	}
	log.Info("serving cAdvisor")
	d.background.Go(func() {
		if err := cadvisor.Serve(ctx, l, cadvisorNode{n.Engine, n.Images, d.cfg.Root}); err != nil {
			log.WithError(err).Error("failed to serve cAdvisor, giving up")
		}
	})
}

func (d *daemon) listenCadvisor() (net.Listener, error) {
	if err := os.MkdirAll(filepath.Join(emptyDir(d.cfg.Root), diffName), 0o700); err != nil {
		return nil, err
	}
	return state.Listen(d.cfg.Cadvisor.Socket, state.SocketMode, d.log)
}

// diffName is the directory in a container's Root whose files cAdvisor counts.
const diffName = "diff"

// emptyDir is the Root of infra containers, which write nothing.
func emptyDir(root string) string { return filepath.Join(root, "pause", "empty") }

// cadvisorNode implements cadvisor.Node.
type cadvisorNode struct {
	engine *sandbox.Engine
	images *image.Store
	root   string
}

// Info names the driver with which cAdvisor measures the directory diff of each container.
func (n cadvisorNode) Info() cadvisor.Info {
	return cadvisor.Info{StorageDriver: "overlay", StorageRoot: filepath.Join(n.root, "storage")}
}

// Container describes a container, or the infra container of the pod with this id.
func (n cadvisorNode) Container(id string) (cadvisor.Container, bool) {
	if c, err := n.engine.Container(id); err == nil {
		return n.container(c), true
	}
	if p, err := n.engine.Pod(id); err == nil && p.HasInfra() {
		return n.infra(p), true
	}
	return cadvisor.Container{}, false
}

func (n cadvisorNode) container(c *sandbox.Container) cadvisor.Container {
	name, pod, image := c.Config.GetMetadata().GetName(), c.Pod(), c.Config.GetImage()
	return cadvisor.Container{
		Name: criName(name, pod), Pid: pidOf(c), Image: cmp.Or(image.GetUserSpecifiedImage(), image.GetImage()),
		CreatedTime: c.CreatedAt.UnixNano(), Labels: podLabels(name, pod, c.Config.GetLabels()),
		Annotations: c.Config.GetAnnotations(), LogPath: c.View().LogPath(),
		Root: filepath.Dir(n.images.UpperDir(c.ID)), IPs: pod.Status().IPs,
	}
}

// pidOf returns the first process, 0 unless the container is running.
func pidOf(c *sandbox.Container) int {
	if s := c.Status(); s.State == record.ContainerRunning {
		return s.Process.Pid
	}
	return 0
}

// infra is the row of the pod's network: cAdvisor measures that of containers named POD only.
func (n cadvisorNode) infra(p *sandbox.Pod) cadvisor.Container {
	const name = "POD"
	return cadvisor.Container{
		Name: criName(name, p), Pid: p.Status().Infra.Pid, Image: "podd-pause", CreatedTime: p.CreatedAt.UnixNano(),
		Labels:      podLabels(name, p, p.Config.GetLabels()),
		Annotations: p.Config.GetAnnotations(), Root: emptyDir(n.root), IPs: p.Status().IPs,
	}
}

// podLabels returns labels with those that name the container, which the kubelet sets and other clients may not.
func podLabels(name string, p *sandbox.Pod, labels map[string]string) map[string]string {
	all, m := map[string]string{}, p.Config.GetMetadata()
	maps.Copy(all, labels)
	all["io.kubernetes.container.name"] = name
	all["io.kubernetes.pod.name"], all["io.kubernetes.pod.namespace"] = m.GetName(), m.GetNamespace()
	all["io.kubernetes.pod.uid"] = m.GetUid()
	return all
}

// criName is the name that dockershim gave containers, and other runtimes since.
func criName(name string, p *sandbox.Pod) string {
	m := p.Config.GetMetadata()
	return fmt.Sprintf("k8s_%s_%s_%s_%s_%d", name, m.GetName(), m.GetNamespace(), m.GetUid(), m.GetAttempt())
}
