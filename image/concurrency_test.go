package image_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/sirupsen/logrus"
	"go.podman.io/storage/pkg/lockfile"

	"github.com/podd-project/podd/image"
)

// hang makes a registry block before it answers a request for a path that contains the given part. It returns a channel
// that receives once per request, and a function that unblocks all of them.
func hang(t *testing.T, reg *testRegistry, part string) (arrived <-chan struct{}, proceed func()) {
	ch := make(chan struct{}, 100)
	gate := make(chan struct{})
	reg.setGuard(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, part) {
			ch <- struct{}{}
			select {
			case <-gate:
			case <-r.Context().Done():
			}
		}
		return false
	})
	proceed = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(proceed)
	return ch, proceed
}

// eventually polls until check returns true.
func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	for range 1000 {
		if check() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("timeout, still waiting until %s", what)
}

func callers(s *image.Store) int {
	n := 0
	for _, p := range pullsOf(s) {
		n += p.Callers
	}
	return n
}

func TestOneDownloadForManyCallers(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	img := simple(t, strings.Repeat("x", 100000))
	reg.push(t, "app:v1", img)
	arrived, proceed := hang(t, reg, "/blobs/"+layerDigest(t, img, 0))
	s := open(t, config(t, reg.host))
	reg.forget()
	results := make(chan *image.Image, 20)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			got, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
			if err != nil {
				t.Error(err)
			}
			results <- got
		})
	}
	<-arrived
	eventually(t, "all 20 joined", func() bool { return callers(s) == 20 })
	// The pull's process reports the download on its own way, which may take longer than its request.
	eventually(t, "one download of the image", func() bool {
		pulls := pullsOf(s)
		return len(pulls) == 1 && pulls[0].Stage == image.StageDownloading && pulls[0].Ref == reg.host+"/app:v1"
	})
	proceed()
	wg.Wait()
	first := <-results
	for range 19 {
		if got := <-results; got != first {
			t.Errorf("result of a joined pull = %v, want %v", got, first)
		}
	}
	for what, want := range map[string]int{"GET /v2/app/blobs/" + layerDigest(t, img, 0): 1, "GET /v2/app/manifests/": 1} {
		if n := reg.count(what); n != want {
			t.Errorf("%d requests for %s, want %d", n, what, want)
		}
	}
	if left := pullsOf(s); len(left) != 0 {
		t.Errorf("Pulls after the end = %+v, want none", left)
	}
}

// TestPullsOfSharedLayers: concurrent pulls of images that share layers all succeed.
func TestPullsOfSharedLayers(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	base := tree{"base": strings.Repeat("b", 100000)}
	want := map[string]v1.Image{}
	for i := range 8 {
		ref := fmt.Sprintf("app%d:v1", i)
		want[ref] = craft(t, nil, base, tree{"own": fmt.Sprint(i)})
		reg.push(t, ref, want[ref])
	}
	s := open(t, config(t, reg.host))
	var wg sync.WaitGroup
	for ref, img := range want {
		wg.Go(func() {
			got, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/" + ref})
			if err != nil {
				t.Error(err)
			} else if got.ID != imageID(t, img) {
				t.Errorf("pull of %s = image %s, want %s", ref, got.ID, imageID(t, img))
			}
		})
	}
	wg.Wait()
	if list, _ := s.List(t.Context()); len(list) != len(want) {
		t.Errorf("%d images, want %d", len(list), len(want))
	}
}

// TestRemoveDuringPull: a pull needs a layer of an image that is removed while it fetches the layer above.
func TestRemoveDuringPull(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	base := tree{"base": "b"}
	img := craft(t, nil, base, tree{"own": "2"})
	reg.push(t, "app1:v1", craft(t, nil, base, tree{"own": "1"}))
	reg.push(t, "app2:v1", img)
	s := open(t, config(t, reg.host))
	pull(t, s, reg.host+"/app1:v1")
	arrived, proceed := hang(t, reg, "/blobs/"+layerDigest(t, img, 1))
	pulled := make(chan error, 1)
	go func() {
		_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app2:v1"})
		pulled <- err
	}()
	<-arrived
	if err := s.Remove(t.Context(), reg.host+"/app1:v1"); err != nil {
		t.Error(err)
	}
	proceed()
	if err := <-pulled; err != nil {
		t.Errorf("pull = %v, want no error", err)
	}
}

func TestOtherCredentialsAreAnotherPull(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	arrived, proceed := hang(t, reg, "/manifests/")
	s := open(t, config(t, reg.host))
	var wg sync.WaitGroup
	for _, auth := range []*image.Auth{nil, {Username: "a", Password: "b"}} {
		wg.Go(func() {
			if _, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1", Auth: auth}); err != nil {
				t.Error(err)
			}
		})
	}
	<-arrived
	<-arrived
	if n := len(pullsOf(s)); n != 2 {
		t.Errorf("%d pulls under way, want 2", n)
	}
	proceed()
	wg.Wait()
}

// TestPullOutlivesItsCaller: a kubelet restarts in the middle of a pull and repeats it.
func TestPullOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	img := simple(t, "x")
	reg.push(t, "app:v1", img)
	arrived, proceed := hang(t, reg, "/blobs/"+layerDigest(t, img, 0))
	s := open(t, config(t, reg.host))
	reg.forget()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := s.Pull(ctx, image.PullRequest{Ref: reg.host + "/app:v1"})
		failed <- err
	}()
	<-arrived
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want canceled", err)
	}
	if n := callers(s); n != 0 || len(pullsOf(s)) != 1 {
		t.Errorf("%d callers of %d pulls, want none of one", n, len(pullsOf(s)))
	}
	second := make(chan error)
	go func() {
		_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
		second <- err
	}()
	eventually(t, "the second caller joined", func() bool { return callers(s) == 1 })
	proceed()
	if err := <-second; err != nil {
		t.Error(err)
	}
	if n := reg.count("GET /v2/app/blobs/" + layerDigest(t, img, 0)); n != 1 {
		t.Errorf("layer was fetched %d times, want once", n)
	}
}

func TestAbandonedPullEnds(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	img := simple(t, "x")
	reg.push(t, "app:v1", img)
	arrived, _ := hang(t, reg, "/blobs/"+layerDigest(t, img, 0))
	cfg := config(t, reg.host)
	cfg.PullGrace = 0
	s := open(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if _, err := s.Pull(ctx, image.PullRequest{Ref: reg.host + "/app:v1"}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want canceled", err)
	}
	eventually(t, "the pull ended", func() bool { return len(pullsOf(s)) == 0 })
	eventually(t, "its files are gone", func() bool {
		left, err := filepath.Glob(filepath.Join(cfg.Root, "tmp", "*"))
		return err == nil && len(left) == 0
	})
	checkEmpty(t, s)
}

func TestCloseEndsPulls(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	arrived, _ := hang(t, reg, "/manifests/")
	cfg := config(t, reg.host)
	s, err := image.New(cfg.Config, cfg.Node, logrus.StandardLogger())
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
		failed <- err
	}()
	<-arrived
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errdefs.IsAborted(err) {
		t.Errorf("error %v, want aborted", err)
	}
}

// TestStall: a registry that sends nothing, or a byte now and then, makes the pull fail as unavailable.
func TestStall(t *testing.T) {
	t.Parallel()
	img := simple(t, strings.Repeat("incompressible?", 1000))
	for name, part := range map[string]string{
		"manifest": "/manifests/", "layer": "/blobs/" + layerDigest(t, img, 0), "config": "/blobs/sha256:" + imageID(t, img),
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t)
			reg.push(t, "app:v1", img)
			hang(t, reg, part)
			checkStalls(t, reg)
		})
	}
	t.Run("trickle", func(t *testing.T) {
		reg := newRegistry(t)
		reg.push(t, "app:v1", img)
		reg.setGuard(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, layerDigest(t, img, 0)) {
				return false
			}
			w.Header().Set("Content-Length", "1000000")
			for range 100000 {
				if _, err := w.Write([]byte{'x'}); err != nil {
					break
				}
				w.(http.Flusher).Flush()
				time.Sleep(20 * time.Millisecond)
			}
			return true
		})
		checkStalls(t, reg)
	})
}

func checkStalls(t *testing.T, reg *testRegistry) {
	t.Helper()
	cfg := config(t, reg.host)
	cfg.PullProgressTimeout = 500 * time.Millisecond
	s := open(t, cfg)
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := s.Pull(ctx, image.PullRequest{Ref: reg.host + "/app:v1"})
	if !isUnavailable(err) || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "too little") {
		t.Errorf("error %v, want unavailable", err)
	}
	if d := time.Since(begin); d > 10*time.Second {
		t.Errorf("took %v, want at most 10s", d)
	}
	checkEmpty(t, s)
}

// TestReadersDoNotWaitForStorage: while storage's locks are held, for instance by a pull that commits a layer, only
// writers wait (in cri-o#1172 readers did too).
func TestReadersDoNotWaitForStorage(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	cfg := config(t, reg.host)
	s := open(t, cfg)
	img := pull(t, s, reg.host+"/app:v1")
	for _, path := range []string{"overlay-layers/layers.lock", "overlay-images/images.lock",
		"overlay-containers/containers.lock", "storage.lock"} {
		lock, err := lockfile.GetLockFile(filepath.Join(cfg.Root, path))
		if err != nil {
			t.Fatal(err)
		}
		lock.Lock()
		defer lock.Unlock()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if list, err := s.List(t.Context()); err != nil || len(list) != 1 {
			t.Errorf("List = %d images, %v, want 1", len(list), err)
		}
		if _, err := s.Resolve(t.Context(), reg.host+"/app:v1"); err != nil {
			t.Error(err)
		}
		if _, _, err := s.Usage(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := s.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "c", ImageID: img.ID}); err != nil {
			t.Error(err)
		}
		if _, err := s.Volume(t.Context(), image.VolumeRequest{ContainerID: "c", ImageID: img.ID}); err != nil {
			t.Error(err)
		}
		if err := s.Release(t.Context(), "c"); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("a reader waits for storage's locks")
	}
}

// pullsOf returns the pulls in progress.
func pullsOf(s *image.Store) []image.PullProgress {
	pulls, _ := s.Pulls()
	return pulls
}
