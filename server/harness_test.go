package server

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/record"
)

// The node of the tests: one pod with a running and an exited container, one image.
const (
	podID     = "aaaa0000000000000000000000000000000000000000000000000000000000aa"
	stoppedID = "aabb0000000000000000000000000000000000000000000000000000000000bb"
	runningID = "cccc0000000000000000000000000000000000000000000000000000000000cc"
	exitedID  = "ccdd0000000000000000000000000000000000000000000000000000000000dd"
	imageID   = "1111111111111111111111111111111111111111111111111111111111111111"
	imageTag  = "registry.k8s.io/busybox:1.36"
	imageDgst = "registry.k8s.io/busybox@sha256:2222222222222222222222222222222222222222222222222222222222222222"
	secret    = "hunter2-do-not-print"
)

var created = time.Unix(1700000000, 42)

// harness is a server behind real gRPC, on fakes.
type harness struct {
	engine   *fakeEngine
	images   *fakeImages
	network  *fakeNetwork
	streamer *fakeStreamer
	log      *logBuffer
	calls    chan Call
	runtime  cri.RuntimeServiceClient
	image    cri.ImageServiceClient
	conn     *grpc.ClientConn
	server   *Server
}

// logBuffer is written by the server's goroutines and read by the test.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newHarness(t testing.TB, change ...func(*Deps)) *harness {
	t.Helper()
	h := &harness{
		engine: newFakeEngine(), images: newFakeImages(), network: &fakeNetwork{}, streamer: &fakeStreamer{},
		log: &logBuffer{}, calls: make(chan Call, 100),
	}
	log := logrus.New()
	log.SetOutput(h.log)
	log.SetLevel(logrus.TraceLevel)
	deps := Deps{
		Engine: h.engine, Images: h.images, Network: h.network, Streamer: h.streamer, Log: log,
		Observe: func(c Call) {
			select {
			case h.calls <- c:
			default:
			}
		},
		RuntimeSpec: func(string) (*specs.Spec, error) { return fakeSpec(), nil },
		PodSpec:     func(*record.Pod) (*specs.Spec, error) { return fakeSpec(), nil },
		Space:       func() error { return nil },
		Info:        map[string]func() any{"cni": func() any { return map[string]string{"conf": "10-podd.conflist"} }},
	}
	for _, f := range change {
		f(&deps)
	}
	h.server = New(Config{Version: "1.2.3"}, deps)
	h.conn = serve(t, h.server)
	h.runtime, h.image = cri.NewRuntimeServiceClient(h.conn), cri.NewImageServiceClient(h.conn)
	return h
}

// serve puts the server on a unix socket, as in production, and connects to it as the kubelet does.
func serve(t testing.TB, s *Server) *grpc.ClientConn {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(s.Options()...)
	s.Register(g)
	served := make(chan struct{})
	go func() {
		defer close(served)
		g.Serve(listener)
	}()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		g.Stop()
		<-served
	})
	return conn
}

func newFakeEngine() *fakeEngine {
	return &fakeEngine{
		recorder: recorder{fail: map[string]error{}},
		pods: []record.PodView{
			{Pod: podRecord(podID), Status: record.PodStatus{State: record.PodReady, IPs: []string{"10.1.0.5", "fd00::5"}}},
			{Pod: podRecord(stoppedID), Status: record.PodStatus{State: record.PodNotReady}},
		},
		containers: []record.ContainerView{runningContainer(), exitedContainer()},
		handlers: []sandbox.Handler{
			{
				Name: "runc", Default: true,
				Features: oci.Features{Version: "runc 1.5.2", RecursiveReadOnly: true, UserNamespaces: true},
			},
			{Name: "crun"},
		},
		inUse: map[string][]string{},
	}
}

func podRecord(id string) *record.Pod {
	cfg := goodPod()
	cfg.Labels["id"] = id
	return &record.Pod{
		ID: id, CreatedAt: created, Config: cfg, RequestedHandler: "runc", Netns: "/run/podd/netns/" + id,
		BootID: "boot",
	}
}

func runningContainer() record.ContainerView {
	return record.ContainerView{
		Container: &record.Container{
			ID: runningID, PodID: podID, CreatedAt: created, Config: goodContainer(), ImageID: imageID,
			StopSignal: "SIGTERM",
		},
		Pod: record.PodView{Pod: podRecord(podID)},
		Status: record.ContainerStatus{
			State: record.ContainerRunning, Process: oci.Process{Pid: 4711, Start: 1}, StartedAt: created.Add(time.Second),
			User:      &specs.User{UID: 1000, GID: 1001, AdditionalGids: []uint32{1001, 2000}},
			Resources: &cri.LinuxContainerResources{CpuShares: 512},
		},
	}
}

func exitedContainer() record.ContainerView {
	c := runningContainer()
	r := *c.Container
	r.ID, r.StopSignal = exitedID, "SIGRTMIN+3"
	cfg := goodContainer()
	cfg.Labels = map[string]string{"app": "other"}
	r.Config = cfg
	c.Container = &r
	c.Status = record.ContainerStatus{
		State: record.ContainerExited, StartedAt: created.Add(time.Second), FinishedAt: created.Add(2 * time.Second),
		ExitCode: 137, Reason: "OOMKilled", Message: "out of memory \xff",
	}
	return c
}

func newFakeImages() *fakeImages {
	return &fakeImages{
		recorder: recorder{fail: map[string]error{}},
		images: []*image.Image{{
			ID: imageID, Tags: []string{"example.com/other:1", imageTag}, Digests: []string{imageDgst}, Size: 4096,
			Config:      imagespec.ImageConfig{User: "1000:1000", Cmd: []string{"sh"}},
			Annotations: map[string]string{"a": "b"}, Pinned: true,
		}},
		usage: [2][]image.FsUsage{
			{{Mountpoint: "/var/lib/podd/storage", Bytes: 10, Inodes: 11, At: created}},
			{{Mountpoint: "/var/lib/podd/containers", Bytes: 20, Inodes: 21, At: created}},
		},
	}
}

func fakeSpec() *specs.Spec {
	return &specs.Spec{
		Version: "1.0.2",
		Process: &specs.Process{Args: []string{"sh"}, Env: []string{"PASSWORD=" + secret}},
		Linux: &specs.Linux{Resources: &specs.LinuxResources{
			CPU: &specs.LinuxCPU{Shares: new(uint64(2)), Quota: new(int64(1000))},
		}},
		Hooks: &specs.Hooks{Poststop: []specs.Hook{{Path: "/hook", Env: []string{"TOKEN=" + secret}}}},
	}
}

// goodPod is a pod that uses every field; tests change one.
func goodPod() *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u-1", Attempt: 2},
		Hostname:     "web-0",
		LogDirectory: "/var/log/pods/default_web_u-1",
		DnsConfig: &cri.DNSConfig{
			Servers: []string{"10.96.0.10"}, Searches: []string{"svc.cluster.local"}, Options: []string{"ndots:5"},
		},
		PortMappings: []*cri.PortMapping{{ContainerPort: 80, HostPort: 8080, HostIp: "127.0.0.1"}, {ContainerPort: 81}},
		Labels:       map[string]string{"app": "web"},
		Annotations:  map[string]string{"kubernetes.io/config.source": "api", "odd": "\n kept as it is \t"},
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent: "/kubepods/burstable/podu-1",
			Sysctls:      map[string]string{"net.ipv4.ip_unprivileged_port_start": "0"},
			SecurityContext: &cri.LinuxSandboxSecurityContext{
				NamespaceOptions: &cri.NamespaceOption{
					Pid:           cri.NamespaceMode_CONTAINER,
					UsernsOptions: &cri.UserNamespace{Mode: cri.NamespaceMode_NODE},
				},
				SelinuxOptions:     &cri.SELinuxOption{Level: "s0:c1,c2"},
				RunAsUser:          &cri.Int64Value{Value: 1},
				RunAsGroup:         &cri.Int64Value{Value: 2},
				SupplementalGroups: []int64{3},
				Seccomp:            &cri.SecurityProfile{},
				Apparmor:           &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: "mine"},
			},
			Overhead:  &cri.LinuxContainerResources{},
			Resources: &cri.LinuxContainerResources{CpuPeriod: 100000},
		},
	}
}

// goodContainer is a container that uses every field; tests change one.
func goodContainer() *cri.ContainerConfig {
	return &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "main", Attempt: 1},
		Image: &cri.ImageSpec{
			Image: imageID, UserSpecifiedImage: "busybox:1.36", Annotations: map[string]string{"x": "y"},
			RuntimeHandler: "crun",
		},
		Command:     []string{"sh"},
		Args:        []string{"-c", ""},
		WorkingDir:  "/srv",
		Envs:        []*cri.KeyValue{{Key: "PASSWORD", Value: []byte(secret)}, {Key: "MULTI", Value: []byte("a\nb")}},
		Mounts:      goodMounts(),
		Devices:     []*cri.Device{{HostPath: "/dev/null", ContainerPath: "/dev/zero", Permissions: "rwm"}},
		Labels:      map[string]string{"app": "web"},
		Annotations: map[string]string{"io.kubernetes.container.hash": "1"},
		LogPath:     "main/0.log",
		CDIDevices:  []*cri.CDIDevice{{Name: "vendor.com/gpu=0"}},
		StopSignal:  cri.Signal_SIGNAL_SIGRTMINPLUS3,
		Linux: &cri.LinuxContainerConfig{
			Resources: &cri.LinuxContainerResources{
				CpuPeriod: 100000, CpuQuota: -1, CpuShares: 2, MemoryLimitInBytes: 1 << 30,
				MemorySwapLimitInBytes: -1, OomScoreAdj: -997,
				CpusetCpus: "0-1", CpusetMems: "0", HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB", Limit: 1}},
				Unified: map[string]string{"memory.high": "max"},
			},
			SecurityContext: &cri.LinuxContainerSecurityContext{
				Capabilities: &cri.Capability{
					AddCapabilities: []string{"NET_ADMIN"}, DropCapabilities: []string{"ALL"},
					AddAmbientCapabilities: []string{"NET_RAW"},
				},
				NamespaceOptions:   &cri.NamespaceOption{Pid: cri.NamespaceMode_TARGET, TargetId: exitedID},
				SelinuxOptions:     &cri.SELinuxOption{User: "u"},
				RunAsUser:          &cri.Int64Value{Value: 1000},
				RunAsGroup:         &cri.Int64Value{Value: 1000},
				SupplementalGroups: []int64{0, 4294967294},
				MaskedPaths:        []string{"/proc/kcore"},
				ReadonlyPaths:      []string{"/proc/sys"},
				Seccomp: &cri.SecurityProfile{
					ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: "/var/lib/kubelet/seccomp/a.json",
				},
				Apparmor: &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined},
			},
		},
	}
}

func goodMounts() []*cri.Mount {
	ids := []*cri.IDMapping{{HostId: 100000, ContainerId: 0, Length: 65536}}
	return []*cri.Mount{
		{
			ContainerPath: "/data", HostPath: "/var/lib/kubelet/x", Readonly: true, RecursiveReadOnly: true,
			SelinuxRelabel: true, UidMappings: ids, GidMappings: ids,
		},
		{
			ContainerPath: "/bi", HostPath: "/mnt", Propagation: cri.MountPropagation_PROPAGATION_BIDIRECTIONAL,
			MountOptions: []string{"noexec", "nosuid"},
		},
		{ContainerPath: "/img", Image: &cri.ImageSpec{Image: imageTag}, ImageSubPath: "etc/ssl", Readonly: true},
	}
}

func wantCode(t *testing.T, err error, code codes.Code, parts ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("got %v, want code %v", err, code)
	}
	for _, part := range parts {
		if !strings.Contains(status.Convert(err).Message(), part) {
			t.Errorf("message = %q, want %q in it", status.Convert(err).Message(), part)
		}
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
