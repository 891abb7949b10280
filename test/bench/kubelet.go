package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const busybox = "registry.k8s.io/e2e-test-images/busybox:1.29-2"

// callLimit is the timeout of one call. When it expires the run fails.
const callLimit = 2 * time.Minute

// kubelet acts as the kubelet of one server: it sends the requests of a kubelet, in its order.
type kubelet struct {
	conn         *grpc.ClientConn
	runtime      cri.RuntimeServiceClient
	images       cri.ImageServiceClient
	cgroupParent string
	dir          string            // for logs and for the files that are mounted into containers
	network      cri.NamespaceMode // of the pods
	made         atomic.Int64
}

func newKubelet(socket, cgroupParent, dir string) (*kubelet, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return nil, err
	}
	k := &kubelet{conn: conn, runtime: cri.NewRuntimeServiceClient(conn), images: cri.NewImageServiceClient(conn),
		cgroupParent: cgroupParent, dir: dir}
	for _, name := range []string{"etc-hosts", "termination-log"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			return nil, err
		}
	}
	return k, nil
}

func (k *kubelet) pull(ctx context.Context, image string) error {
	_, err := k.images.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: image}})
	return err
}

// podConfig is a pod of a ReplicaSet, as the kubelet describes it.
func (k *kubelet) podConfig() *cri.PodSandboxConfig {
	n := k.made.Add(1)
	name := fmt.Sprintf("web-%06d", n)
	return &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "bench",
			Uid: fmt.Sprintf("6f1c2f6e-7c55-4b1e-9b0e-%012d", n)},
		Hostname:     name,
		LogDirectory: filepath.Join(k.dir, "logs", name),
		DnsConfig: &cri.DNSConfig{Servers: []string{"10.96.0.10"}, Searches: []string{"bench.svc.cluster.local",
			"svc.cluster.local"}, Options: []string{"ndots:5"}},
		Labels: map[string]string{"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "bench",
			"pod-template-hash": "5d89bdfbf9"},
		Annotations: map[string]string{"kubernetes.io/config.seen": "2026-01-01T00:00:00.000000000Z",
			"kubernetes.io/config.source": "api"},
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    k.cgroupParent,
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: k.namespaces(), Seccomp: runtimeDefault()},
		},
	}
}

func (k *kubelet) namespaces() *cri.NamespaceOption {
	return &cri.NamespaceOption{Network: k.network, Ipc: cri.NamespaceMode_POD, Pid: cri.NamespaceMode_CONTAINER}
}

func runtimeDefault() *cri.SecurityProfile {
	return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}
}

// containerConfig is a container with requests and limits, seccomp and the kubelet's mounts.
func (k *kubelet) containerConfig(name string) *cri.ContainerConfig {
	return &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: name},
		Image:    &cri.ImageSpec{Image: busybox, UserSpecifiedImage: busybox},
		Command:  []string{"sleep", "1000000"},
		Envs: []*cri.KeyValue{{Key: "KUBERNETES_SERVICE_HOST", Value: []byte("10.96.0.1")},
			{Key: "KUBERNETES_SERVICE_PORT", Value: []byte("443")}},
		Labels:      map[string]string{"io.kubernetes.container.name": name, "io.kubernetes.pod.namespace": "bench"},
		Annotations: map[string]string{"io.kubernetes.container.hash": "a1b2c3", "io.kubernetes.container.restartCount": "0"},
		LogPath:     name + "_0.log",
		Mounts: []*cri.Mount{
			{HostPath: filepath.Join(k.dir, "etc-hosts"), ContainerPath: "/etc/hosts"},
			{HostPath: filepath.Join(k.dir, "termination-log"), ContainerPath: "/dev/termination-log"},
		},
		Linux: &cri.LinuxContainerConfig{
			Resources: &cri.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: 50000, CpuShares: 102,
				MemoryLimitInBytes: 128 << 20, OomScoreAdj: 990},
			SecurityContext: &cri.LinuxContainerSecurityContext{
				NamespaceOptions: k.namespaces(), Seccomp: runtimeDefault(), NoNewPrivs: true,
				MaskedPaths: []string{"/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
					"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
					"/sys/devices/virtual/powercap"},
				ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
			},
		},
	}
}

// criPod is a pod with one container.
type criPod struct {
	pod, container string
	config         *cri.PodSandboxConfig
}

// up runs a pod with one container.
func (k *kubelet) up(ctx context.Context, handler string, t *timer) (criPod, error) {
	return k.upWith(ctx, handler, t, func(*cri.ContainerConfig) {})
}

// upWith runs a pod with one container, which change edits.
func (k *kubelet) upWith(
	ctx context.Context, handler string, t *timer, change func(*cri.ContainerConfig),
) (criPod, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	config := k.podConfig()
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil { // as the kubelet does
		return criPod{}, err
	}
	p := criPod{config: config}
	err := t.run([]step{
		{"RunPodSandbox", func() error {
			r, err := k.runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
			p.pod = r.GetPodSandboxId()
			return err
		}},
		{"CreateContainer", func() error {
			container := k.containerConfig("main")
			change(container)
			r, err := k.runtime.CreateContainer(ctx,
				&cri.CreateContainerRequest{PodSandboxId: p.pod, Config: container, SandboxConfig: config})
			p.container = r.GetContainerId()
			return err
		}},
		{"StartContainer", func() error {
			_, err := k.runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: p.container})
			return err
		}},
	})
	return p, err
}

// add runs one more container in the pod.
func (k *kubelet) add(ctx context.Context, p criPod, name string) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	r, err := k.runtime.CreateContainer(ctx,
		&cri.CreateContainerRequest{PodSandboxId: p.pod, Config: k.containerConfig(name), SandboxConfig: p.config})
	if err != nil {
		return err
	}
	_, err = k.runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: r.ContainerId})
	return err
}

func (k *kubelet) exec(ctx context.Context, p criPod) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	r, err := k.runtime.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: p.container, Cmd: []string{"true"}, Timeout: 60})
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("exit code of true = %d, want 0: %s", r.ExitCode, r.Stderr)
	}
	return err
}

// down stops and removes the pod without grace period, so that only the runtime's work is measured.
func (k *kubelet) down(ctx context.Context, p criPod, t *timer) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return t.run([]step{
		{"StopContainer", func() error {
			_, err := k.runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: p.container})
			return err
		}},
		{"StopPodSandbox", func() error {
			_, err := k.runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.pod})
			return err
		}},
		{"RemoveContainer", func() error {
			_, err := k.runtime.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: p.container})
			return err
		}},
		{"RemovePodSandbox", func() error {
			_, err := k.runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.pod})
			return err
		}},
	})
}

// removeFurther stops and removes the containers that add created in the pod, as a kubelet does before it stops the
// pod.
func (k *kubelet) removeFurther(ctx context.Context, p criPod) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	list, err := k.runtime.ListContainers(ctx,
		&cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: p.pod}})
	if err != nil {
		return fmt.Errorf("ListContainers: %w", err)
	}
	for _, c := range list.Containers {
		if c.Id == p.container {
			continue
		}
		if _, err := k.runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: c.Id}); err != nil {
			return fmt.Errorf("StopContainer: %w", err)
		}
		if _, err := k.runtime.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: c.Id}); err != nil {
			return fmt.Errorf("RemoveContainer: %w", err)
		}
	}
	return nil
}

// removeAll stops and removes the pods that an interrupted run left.
func (k *kubelet) removeAll(ctx context.Context) error {
	list, err := k.runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	var failed []string
	for _, p := range list.Items {
		_, stop := k.runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.Id})
		_, remove := k.runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.Id})
		if stop != nil || remove != nil {
			failed = append(failed, fmt.Sprintf("%s: %v, %v", p.Id, stop, remove))
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("remove pods: %s", strings.Join(failed, "; "))
	}
	return nil
}
