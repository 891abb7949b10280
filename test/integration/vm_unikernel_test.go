package integration

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/images"
)

// unikernelImage is the image whose content is a kernel with one program.
const unikernelImage = "example.com/unikernel:1"

// TestVMUnikernel: a pod whose image is a kernel. Its console is its log, it is reached at the pod's address, it ends
// with an exit code, stops, and is replaced by a next container of the same pod, whatever happens to podd. What needs
// an agent is refused by name, and so is what is not a kernel that the handler can boot, or must not run.
func TestVMUnikernel(t *testing.T) {
	t.Parallel()
	k := startUnikernels(t)
	t.Run("life", func(t *testing.T) { k.unikernelPod(t, 256).checkLife() })
	t.Run("refused", func(t *testing.T) { k.unikernelPod(t, 256).checkRefused(t) })
	t.Run("refused pod", func(t *testing.T) { k.sub(t).checkUnikernelPods(t) })
	t.Run("hostile", func(t *testing.T) { k.unikernelPod(t, smallMachine).checkHostile(t) })
}

// smallMachine is the memory in MiB of a machine into which the kernel fits, and the file "huge" does not.
const smallMachine = 15

func (u *unikernelPod) checkLife() {
	u.runUnikernel()
	want := u.kernelRelease()
	u.checkLog(want)
	u.checkUsage()
	u.send("/exit?code=3")
	u.wantExit(3)
	u.restartPodd()
	u.runUnikernel()
	if got := u.kernelRelease(); got != want {
		u.Errorf("kernel of the next container = %q, want %q", got, want)
	}
	u.send("/restart")
	u.wantExit(forDriver(int32(0), int32(1)))
	u.runUnikernel()
	u.kernelRelease()
	u.restartPodd()
	u.stopContainer(u.ctr, 1)
	if st := u.exited(u.ctr); st.ExitCode == 0 {
		u.Error("exit code of a machine that was stopped = 0, want another")
	}
	u.stopPod(u.pod)
	u.removePod(u.pod)
}

// wantExit fails the test unless the container ends with that code.
func (u *unikernelPod) wantExit(code int32) {
	u.Helper()
	if st := u.exited(u.ctr); st.ExitCode != code {
		u.Errorf("exit code = %d, want %d", st.ExitCode, code)
	}
}

func (u *unikernelPod) restartPodd() {
	u.Helper()
	u.ok("kill podd", u.Kill9())
	u.ok("start podd", u.Start(u.ctx()))
}

// forDriver returns what is right for the driver of vmHandler.
func forDriver[T any](uml, qemu T) T {
	if vmDriver() == "qemu" {
		return qemu
	}
	return uml
}

// subtest runs f with the pod in a subtest.
func (u *unikernelPod) subtest(t *testing.T, name string, f func(*unikernelPod)) {
	t.Run(name, func(t *testing.T) {
		k, v := *u.kubelet, *u
		k.TB, v.kubelet = t, &k
		f(&v)
	})
}

// checkHostile: only the node's User-Mode Linux, and what QEMU boots, is taken from an image.
func (u *unikernelPod) checkHostile(t *testing.T) {
	other := "the kernel of the image is not"
	for _, c := range []struct{ name, kernel, argument, words string }{
		{"no such file", "/nothing", "", "no such file"},
		{"link out of the image", "/link", "", "no such file"},
		{"directory", "/dir", "", "not a regular file"},
		{"named pipe", "/pipe", "", "not a regular file"},
		{"no kernel", "/text", "", forDriver(other, "neither a bzImage nor an ELF file")},
		{"program for another machine", "/program", "", forDriver(other, "ELF file of type ET_EXEC for EM_AARCH64")},
		{"kernel that ends early", "/short", "", forDriver(other, "QEMU has not started the machine")},
		{"file for root only", "/secret", "", "must be able to read it"},
		{"larger than the machine", "/huge", "", "more than the memory of the machine"},
		{"unprintable arguments", "/small", "A=\x1b[31m", forDriver("environment variables", "printable")},
		{"many arguments", "/small", "A=" + strings.Repeat("a", 3000), "more than 2047 bytes"},
		{"parameter of User-Mode Linux", "/small", "hostfs=/", forDriver("environment variables", "")},
	} {
		if c.words == "" {
			continue
		}
		u.subtest(t, c.name, func(u *unikernelPod) {
			cfg := u.config(strings.ReplaceAll(c.name, " ", "-"))
			cfg.Command, cfg.Args = []string{c.kernel}, []string{c.argument}
			if c.argument == "" {
				cfg.Args = nil
			}
			ctr, err := u.tryCreate(u.pod, cfg, u.cfg)
			if err == nil { // what arguments become, and what QEMU says, is known at the start
				_, err = u.Runtime.StartContainer(u.ctx(), &cri.StartContainerRequest{ContainerId: ctr})
				u.removeContainer(ctr)
			}
			u.refused(c.name, err, c.words, codes.Unknown, codes.InvalidArgument) // files have no kind
		})
	}
}

// unikernelPod is a pod of the handler unikernel.
type unikernelPod struct {
	*kubelet
	cfg       *cri.PodSandboxConfig
	ctrCfg    *cri.ContainerConfig
	pod, ctr  string
	arguments []string
}

// startUnikernels starts podd with a handler of unikernels, and loads their image.
func startUnikernels(t *testing.T) *kubelet {
	guests, err := filepath.Abs("../../bin/vm")
	if err != nil {
		t.Fatal(err)
	}
	driver, more := vmDriver(), ""
	if driver == "qemu" {
		more = `, accelerator = "tcg"`
	}
	k := start(t, fmt.Sprintf(`runtime.handlers.unikernel = {type = "shim", path = "containerd-shim-podvm-v1", `+
		`options = {driver = %q, kernel = "image", images = %q, memory = "4"%s}}`, driver, guests, more))
	k.loadUnikernel(filepath.Join(guests, driver))
	return k
}

// vmDriver is the driver of vmHandler.
func vmDriver() string { return map[string]string{"vm": "uml", "vm-qemu": "qemu"}[vmHandler()] }

// unikernelPod runs a pod whose machine has that memory, in MiB.
func (k *kubelet) unikernelPod(t *testing.T, memory int) *unikernelPod {
	u := &unikernelPod{kubelet: k.sub(t)}
	u.arguments = []string{"GREETING=hello", "ADDRESS={address}", "PREFIX={prefix}", "GATEWAY={gateway}"}
	if vmDriver() == "qemu" {
		u.arguments = append(u.arguments, "console=ttyS0", "quiet", "panic=-1", "tsc=reliable", "no_timer_check")
	}
	u.cfg = u.podConfig(func(c *cri.PodSandboxConfig) {
		c.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: int64(memory-4) << 20}
	})
	u.pod = u.runPod(u.cfg, "unikernel")
	return u
}

// config is that of a container, with a name of its own.
func (u *unikernelPod) config(name string) *cri.ContainerConfig {
	return u.containerConfig([]string{"/kernel"}, func(c *cri.ContainerConfig) {
		c.Image, c.Metadata.Name, c.Args = &cri.ImageSpec{Image: unikernelImage}, name, u.arguments
		c.Envs = []*cri.KeyValue{{Key: "KUBERNETES_SERVICE_HOST", Value: []byte("10.0.0.1")}} // as every container has
	})
}

// runUnikernel runs the next container.
func (u *unikernelPod) runUnikernel() {
	u.Helper()
	u.ctrCfg = u.config("kernel")
	u.ctrCfg.Metadata.Attempt = uint32(len(u.containers(nil)))
	u.ctr = u.create(u.pod, u.ctrCfg, u.cfg)
	u.startContainer(u.ctr)
}

// refusedByShim fails the test unless the error has the shim's words and the code of a refusal.
func (u *unikernelPod) refusedByShim(what string, err error, words string) {
	u.Helper()
	u.refused(what, err, words, codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented)
}

// get gets a path from the machine, at the address of the pod.
func (u *unikernelPod) get(path string) (string, error) {
	r, err := unikernelClient(3 * time.Second).Get(u.url(path))
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return string(body), err
}

// unikernelClient uses a connection once: the machine of the next container has the same address.
func unikernelClient(timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
}

func (u *unikernelPod) url(path string) string {
	return "http://" + u.podStatus(u.pod).Network.Ip + path
}

// send sends a request with which the machine ends, without an answer.
func (u *unikernelPod) send(path string) {
	url := u.url(path)
	go func() {
		if r, err := unikernelClient(10*time.Second).Post(url, "", nil); err == nil {
			_ = r.Body.Close()
		}
	}()
}

// kernelRelease is what the machine says of its kernel when it serves.
func (u *unikernelPod) kernelRelease() (release string) {
	u.Helper()
	u.eventually("the machine serves", func() bool {
		var err error
		release, err = u.get("/")
		return err == nil
	})
	if host, _ := os.ReadFile("/proc/sys/kernel/osrelease"); release == strings.TrimSpace(string(host)) {
		u.Errorf("kernel = %q, that of the host", release)
	}
	return release
}

func (u *unikernelPod) checkLog(release string) {
	u.Helper()
	line := fmt.Sprintf("unikernel %s with hello at %s", release, u.podStatus(u.pod).Network.Ip)
	u.eventually("the log has the console", func() bool {
		return strings.Contains(u.logText(u.cfg, u.ctrCfg), line)
	})
}

// checkRefused: what a container of such a pod cannot do is said by name.
func (u *unikernelPod) checkRefused(t *testing.T) {
	for name, change := range map[string]func(*cri.ContainerConfig){
		"a unikernel has no volumes": func(c *cri.ContainerConfig) {
			c.Mounts = append(c.Mounts, &cri.Mount{HostPath: u.TempDir(), ContainerPath: "/data"})
		},
		"stdin":    func(c *cri.ContainerConfig) { c.Stdin = true },
		"terminal": func(c *cri.ContainerConfig) { c.Tty = true },
		"device": func(c *cri.ContainerConfig) {
			c.Devices = []*cri.Device{{HostPath: "/dev/null", ContainerPath: "/dev/x"}}
		},
	} {
		u.subtest(t, name, func(u *unikernelPod) {
			cfg := u.config("refused")
			change(cfg)
			ctr, err := u.tryCreate(u.pod, cfg, u.cfg)
			if u.refusedByShim(name, err, name); err == nil {
				u.removeContainer(ctr) // else the next one would be refused for it
			}
		})
	}
	u.runUnikernel()
	u.subtest(t, "ExecSync", func(u *unikernelPod) {
		_, err := u.Runtime.ExecSync(u.ctx(), &cri.ExecSyncRequest{ContainerId: u.ctr, Cmd: []string{"true"}, Timeout: 10})
		u.refusedByShim("ExecSync", err, "exec: the pod is a unikernel")
	})
	u.subtest(t, "second container at the same time", func(u *unikernelPod) {
		_, err := u.tryCreate(u.pod, u.config("another"), u.cfg)
		u.refusedByShim("CreateContainer", err, "one container at a time")
	})
	u.subtest(t, "limit above the machine's size", func(u *unikernelPod) {
		_, err := u.Runtime.UpdateContainerResources(u.ctx(), &cri.UpdateContainerResourcesRequest{ContainerId: u.ctr,
			Linux: &cri.LinuxContainerResources{MemoryLimitInBytes: 1 << 30}})
		u.refusedByShim("UpdateContainerResources", err, "cannot grow")
	})
	u.subtest(t, "checkpoint", func(u *unikernelPod) {
		_, err := u.Runtime.CheckpointContainer(u.ctx(), &cri.CheckpointContainerRequest{ContainerId: u.ctr,
			Location: filepath.Join(u.TempDir(), "checkpoint.tar")})
		u.refusedByShim("CheckpointContainer", err, "cannot checkpoint containers")
	})
}

// checkUnikernelPods: what such a pod cannot have is said by name.
func (k *kubelet) checkUnikernelPods(t *testing.T) {
	const namespaces = "cannot use the network, PID or IPC namespace of the node"
	node := cri.NamespaceMode_NODE
	for _, c := range []struct {
		name, words string
		change      func(*cri.LinuxPodSandboxConfig)
	}{
		{"sysctl", "sysctl kernel.shm_rmid_forced", func(c *cri.LinuxPodSandboxConfig) {
			c.Sysctls = map[string]string{"kernel.shm_rmid_forced": "1"}
		}},
		{"network of the node", namespaces, func(c *cri.LinuxPodSandboxConfig) {
			c.SecurityContext.NamespaceOptions = &cri.NamespaceOption{Network: node}
		}},
		{"processes of the node", namespaces, func(c *cri.LinuxPodSandboxConfig) {
			c.SecurityContext.NamespaceOptions = &cri.NamespaceOption{Pid: node}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := *k
			s.TB = t
			_, err := s.Runtime.RunPodSandbox(s.ctx(), &cri.RunPodSandboxRequest{RuntimeHandler: "unikernel",
				Config: s.podConfig(func(cfg *cri.PodSandboxConfig) { c.change(cfg.Linux) })})
			(&unikernelPod{kubelet: &s}).refusedByShim(c.name, err, c.words)
		})
	}
}

// checkUsage: the usage of the container is that of its machine.
func (u *unikernelPod) checkUsage() {
	u.Helper()
	u.eventually("the usage is known", func() bool {
		r, err := u.Runtime.ContainerStats(u.ctx(), &cri.ContainerStatsRequest{ContainerId: u.ctr})
		return err == nil && r.Stats.GetMemory().GetWorkingSetBytes().GetValue() > 8<<20 &&
			r.Stats.GetCpu().GetUsageCoreNanoSeconds().GetValue() > 0
	})
}

// loadUnikernel loads an image whose kernel is that of a guest image of this driver, with the test's program, and files
// that are no kernel.
func (k *kubelet) loadUnikernel(guest string) {
	k.Helper()
	kernel, err := os.ReadFile(filepath.Join(guest, "kernel"))
	k.ok("read the kernel", err)
	program := images.UnikernelProgram(k)
	var initrd []byte
	if vmDriver() == "qemu" { // for the modules of the network card
		initrd, err = os.ReadFile(filepath.Join(guest, "initrd"))
		k.ok("read the initial file system", err)
	}
	other := bytes.Clone(program)
	other[18] = 0xb7 // an ELF file for ARM
	layer := tarArchive(k, []tarFile{
		{tar.Header{Name: "kernel", Mode: 0o755}, kernel},
		{tar.Header{Name: "kernel.initrd", Mode: 0o644}, append(initrd, images.InitialFileSystem(program)...)},
		{tar.Header{Name: "small", Mode: 0o755, Linkname: "kernel", Typeflag: tar.TypeLink}, nil},
		{tar.Header{Name: "text", Mode: 0o644}, []byte("not a kernel")},
		{tar.Header{Name: "program", Mode: 0o755}, other},
		{tar.Header{Name: "short", Mode: 0o755}, kernel[:1024]},
		{tar.Header{Name: "secret", Mode: 0o600}, []byte("for root only")},
		{tar.Header{Name: "huge", Mode: 0o644}, make([]byte, (smallMachine+1)<<20)},
		{tar.Header{Name: "dir/", Mode: 0o755, Typeflag: tar.TypeDir}, nil},
		{tar.Header{Name: "pipe", Mode: 0o644, Typeflag: tar.TypeFifo}, nil},
		{tar.Header{Name: "link", Linkname: "../../../../../../../.." + guest + "/kernel", Typeflag: tar.TypeSymlink}, nil},
	})
	img, err := mutate.AppendLayers(empty.Image, static.NewLayer(layer, types.DockerUncompressedLayer))
	k.ok("make an image", err)
	conf, err := img.ConfigFile()
	k.ok("make an image", err)
	conf = conf.DeepCopy()
	conf.Architecture, conf.OS, conf.Config.Entrypoint = "amd64", "linux", []string{"/kernel"}
	img, err = mutate.ConfigFile(img, conf)
	k.ok("make an image", err)
	tag, err := name.NewTag(unikernelImage)
	k.ok("name the image", err)
	file := filepath.Join(k.TempDir(), "unikernel.tar")
	k.ok("write the image", tarball.WriteToFile(file, tag, img))
	k.runs("image", "load", file)
}

// tarFile is a file of a tar archive.
type tarFile struct {
	header tar.Header
	data   []byte
}

func tarArchive(k *kubelet, files []tarFile) []byte {
	k.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		f.header.Size = int64(len(f.data))
		k.ok("write a layer", w.WriteHeader(&f.header))
		_, err := w.Write(f.data)
		k.ok("write a layer", err)
	}
	k.ok("write a layer", w.Close())
	return b.Bytes()
}
