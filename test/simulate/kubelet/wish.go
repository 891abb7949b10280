package kubelet

import (
	"fmt"
	"math/rand/v2"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Wish is a pod that the API server has.
type Wish struct {
	Config     *cri.PodSandboxConfig
	Handler    string
	Containers []*cri.ContainerConfig
	Restart    bool

	deleted bool // it is in wishes until its worker has ended it
}

func (p *Wish) name() string { return p.Config.GetMetadata().GetName() }

// trap is a program that exits with a code when it is told to end.
func trap(code int) []string {
	return []string{"sh", "-c", fmt.Sprintf(`trap "exit %d" TERM; while :; do sleep 0.05; done`, code)}
}

// commands are those of containers. The fake runtime knows them, too.
var commands = [][]string{
	trap(143), trap(0), {"sleep", "100000"}, {"sleep", "17"}, {"sh", "-c", "exit 3"}, {"true"}, {"nope"},
}

// NewWish returns the i-th pod, which follows from r: one or two containers of the image busybox, with the network of
// the node or not, with shared processes or not.
func NewWish(r *rand.Rand, i int) *Wish {
	name := fmt.Sprint("p", i)
	options := &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}
	switch r.IntN(4) {
	case 0:
		options.Pid = cri.NamespaceMode_POD
	case 1:
		options.Network = cri.NamespaceMode_NODE
	}
	p := &Wish{Restart: r.IntN(3) > 0, Config: &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name},
		Labels:   map[string]string{"io.kubernetes.pod.uid": "uid-" + name},
		Linux: &cri.LinuxPodSandboxConfig{
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: options},
		},
	}}
	for c := range 1 + r.IntN(2) {
		p.Containers = append(p.Containers, &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: string(rune('a' + c))}, Image: &cri.ImageSpec{Image: "busybox"},
			Command: commands[r.IntN(len(commands))],
			Linux: &cri.LinuxContainerConfig{
				SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: options},
			},
		})
	}
	return p
}
