package lazy

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil { // package daemon looks for podd's repository
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Sizes of the layer of which little is read.
const (
	ballastFiles = 16
	ballastSize  = 1 << 20
)

// TestLazyPull: podd takes the layers of an eStargz image from a real additional layer store, which fetches what a
// container reads.
func TestLazyPull(t *testing.T) {
	n, reg := start(t), serve(t)
	command := []string{"sh", "-c", "echo started; sleep 1000"}
	push := func(repo, file string) (ref string, size int64) {
		tar := ballast(t, file, ballastFiles, ballastSize)
		return reg.host + "/" + repo + ":1", reg.push(t, repo+":1", image(t, command, n.busybox, tar))
	}
	app, size := push("app", "app")
	n.pull(app)
	if sent := reg.sent.Load(); sent > size/20 {
		t.Errorf("the pull fetched %d of %d bytes, want at most a twentieth", sent, size)
	}
	p := n.pod("app", false)
	container, err := p.run("main", app)
	must(t, err)

	t.Run("files are fetched when they are read", func(t *testing.T) {
		before := reg.sent.Load()
		if out, code := n.sh(container, "cat /app-3 | wc -c"); code != 0 || out != fmt.Sprint(ballastSize) {
			t.Errorf("the file has %s bytes, exit code %d, want %d", out, code, ballastSize)
		}
		if sent := reg.sent.Load() - before; sent < ballastSize {
			t.Errorf("%d bytes were fetched for a file of %d", sent, ballastSize)
		}
		if sent := reg.sent.Load(); sent > size/4 {
			t.Errorf("%d of %d bytes were fetched, want at most a quarter", sent, size)
		}
	})
	t.Run("podd is killed", func(t *testing.T) {
		must(t, n.Restart(t.Context(), n.Kill9))
		if out, code := n.sh(container, "cat /app-4 | wc -c"); code != 0 || out != fmt.Sprint(ballastSize) {
			t.Errorf("the container reads %s bytes, exit code %d, want %d", out, code, ballastSize)
		}
		before := reg.sent.Load()
		if n.pull(app); reg.sent.Load() > before {
			t.Error("the image was fetched again")
		}
	})
	t.Run("user namespace", func(t *testing.T) {
		other, size := push("other", "other")
		n.pull(other)
		in := n.pod("userns", true)
		defer in.remove()
		_, err := in.run("first", other)
		if err == nil || !strings.Contains(err.Error(), "user namespace") || n.listed(other) {
			t.Errorf("the container is made (%v), or its image is still there", err)
		}
		before := reg.sent.Load()
		n.pull(other)
		if sent := reg.sent.Load() - before; sent < size/2 {
			t.Errorf("%d of %d bytes were fetched, want those of the second layer at least", sent, size)
		}
		second, err := in.run("second", other)
		must(t, err)
		if out, code := n.sh(second, "cat /other-5 | wc -c"); code != 0 || out != fmt.Sprint(ballastSize) {
			t.Errorf("the container reads %s bytes, exit code %d, want %d", out, code, ballastSize)
		}
	})
	t.Run("the store is killed", func(t *testing.T) { n.storeIsKilled(t, p, container, app) })
	t.Run("the store is back", func(t *testing.T) {
		before := reg.sent.Load()
		late, size := push("late", "late")
		n.pull(late)
		if sent := reg.sent.Load() - before; sent > size/4 {
			t.Errorf("the pull fetched %d of %d bytes, want at most a quarter", sent, size)
		}
		n.remove(late)
	})
	p.remove()
	n.remove(app)
	n.remove(reg.host + "/other:1")
	for range 600 { // a minute; podd removes hidden images every 10 s
		if n.layers() == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("podd has %d layers, want none", n.layers())
}

// storeIsKilled: a container that reads a file which was not fetched gets an error, new ones are refused until the
// store is started again, and the image stays.
func (n *node) storeIsKilled(t *testing.T, p *pod, container, app string) {
	n.store.end(unix.SIGKILL)
	reply, err := n.Runtime.ExecSync(t.Context(), &cri.ExecSyncRequest{
		ContainerId: container, Cmd: []string{"cat", "/app-7"}, Timeout: 20,
	})
	if err == nil && reply.ExitCode == 0 {
		t.Error("the container reads a file of a killed store")
	}
	_, err = p.run("second", app)
	if err == nil || !strings.Contains(err.Error(), "start the store") || !n.listed(app) {
		t.Errorf("the container is made (%v), or its image is hidden", err)
	}
	n.store.start()
	second, err := p.run("second", app)
	must(t, err)
	if out, code := n.sh(second, "cat /app-7 | wc -c"); code != 0 || out != fmt.Sprint(ballastSize) {
		t.Errorf("the container reads %s bytes, exit code %d, want %d", out, code, ballastSize)
	}
	must(t, n.Restart(t.Context(), n.Kill9))
	if !n.listed(app) {
		t.Error("the image is not listed after a restart")
	}
}

// remove removes an image.
func (n *node) remove(ref string) {
	n.Helper()
	_, err := n.Images.RemoveImage(n.Context(), &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: ref}})
	must(n, err)
}
