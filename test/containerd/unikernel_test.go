package containerd

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/images"
	"github.com/podd-project/podd/test/leak"
)

// unikernelImage is an image that is a kernel with one program.
const unikernelImage = "registry.k8s.io/podd/unikernel:1"

// TestUnikernel: containerd, which leaves mounting images to shims, runs a pod whose image is the kernel: address, log,
// exit code, a next container, stop. Nothing is left.
func TestUnikernel(t *testing.T) {
	d := start(t)
	d.addUnikernel()
	d.crictl("pull", unikernelImage)
	d.crictl("rmp", "-f", d.crictl("runp", "--runtime", "vm", d.podConfig("first"))) // makes what remains: the bridge
	before, err := leak.Take(d.mine())
	if err != nil {
		t.Fatal(err)
	}
	pod := d.crictl("runp", "--runtime", "unikernel", d.podConfig("unikernel"))
	address := d.podStatus(pod).Network.IP
	d.run("exit code", func(d *server) {
		ctr := d.runUnikernel(pod, address, "one")
		d.eventually("the log", func() bool {
			return strings.Contains(d.crictl("logs", ctr), "with hello at "+address)
		})
		d.eventually("the container has exited", func() bool {
			d.send("http://" + address + "/exit?code=3")
			return strings.Contains(d.crictl("inspect", ctr), "CONTAINER_EXITED")
		})
		d.wants(`"exitCode": 3`, "inspect", ctr)
		d.crictl("rm", ctr)
	})
	d.run("stop", func(d *server) {
		ctr := d.runUnikernel(pod, address, "two")
		out, err := d.command("exec", "-s", ctr, "true").CombinedOutput()
		if want := "exec: the pod is a unikernel"; err == nil || !strings.Contains(string(out), want) {
			d.Errorf("exec in a unikernel = %v, %s, want an error with %q", err, out, want)
		}
		d.crictl("stop", "-t", "1", ctr)
		d.crictl("rm", ctr)
	})
	d.run("nothing is left", func(d *server) {
		d.crictl("stopp", pod)
		d.crictl("rmp", pod)
		d.nothing(before)
	})
}

// addUnikernel adds the image to the registry. Its kernel is the node's, as it must be with User-Mode Linux.
func (d *server) addUnikernel() {
	d.Helper()
	kernel, err := os.ReadFile(filepath.Join(d.repo, "bin", "vm", "uml", "kernel"))
	if err == nil {
		err = d.registry.AddUnikernel(unikernelImage[strings.Index(unikernelImage, "/")+1:], kernel,
			images.InitialFileSystem(images.UnikernelProgram(d)))
	}
	if err != nil {
		d.Fatal(err)
	}
}

// runUnikernel runs the next container of a pod and returns its id when it serves.
func (d *server) runUnikernel(pod, address, name string) string {
	d.Helper()
	id := d.createContainer(pod, &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: name}, Image: &cri.ImageSpec{Image: unikernelImage}, LogPath: name + ".log",
		Args:  []string{"GREETING=hello", "ADDRESS={address}", "PREFIX={prefix}", "GATEWAY={gateway}"},
		Linux: &cri.LinuxContainerConfig{},
	})
	d.crictl("start", id)
	host, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		d.Fatal(err)
	}
	d.eventually("the machine serves its kernel's release", func() bool {
		body := d.send("http://" + address + "/")
		return body != "" && body != strings.TrimSpace(string(host))
	})
	return id
}

// send gets a page from a machine, which may end with it: then it is empty. A connection is used once, because the next
// machine has the same address.
func (d *server) send(url string) string {
	client := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(url)
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	return string(body)
}
