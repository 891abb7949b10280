package lazy

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sizes of the image of the benchmark.
const (
	benchLayers = 8
	benchFiles  = 4000
	benchSize   = 1 << 10
	benchRounds = 3
	// benchTarget is how much of a full pull's time a lazy one may take to the first line of the application.
	benchTarget = 0.2
)

// BenchmarkFirstLine measures the time from PullImage to the first line of the application, of an image of many files
// that is fetched as a whole, and one of the same size that is pulled lazily. The pod exists; caches are not dropped.
func BenchmarkFirstLine(b *testing.B) {
	n, reg := start(b), serve(b)
	n.store.end(term) // without the store the same podd fetches everything
	tars := [][]byte{n.busybox}
	for i := range benchLayers {
		tars = append(tars, ballast(b, fmt.Sprintf("layer-%d/file", i), benchFiles, benchSize))
	}
	size := reg.push(b, "app:1", image(b, []string{"sh", "-c", "echo first line; sleep 1000"}, tars...))
	ref := reg.host + "/app:1"
	var whole, lazily []time.Duration
	var sent, lazySent int64
	for i := range benchRounds { // in turn, so that other work on the machine meets both
		reg.sent.Store(0)
		whole = append(whole, n.firstLine(fmt.Sprintf("whole-%d", i), ref))
		n.forget(ref)
		sent += reg.sent.Swap(0)
		n.store.start() // it has no cache of the round before
		lazily = append(lazily, n.firstLine(fmt.Sprintf("lazy-%d", i), ref))
		n.forget(ref)
		lazySent += reg.sent.Load()
		n.store.end(term)
		must(b, os.RemoveAll(n.store.root))
	}
	slices.Sort(whole)
	slices.Sort(lazily)
	full, first := whole[benchRounds/2], lazily[benchRounds/2]
	ratio := first.Seconds() / full.Seconds()
	fmt.Printf("First line of an image of %d layers of %d files, %d MB, p50 of %d (all):\n\n"+
		"| | ms | MB fetched |\n|---|---:|---:|\n| as a whole | %d (%v) | %.1f |\n| lazily | %d (%v) | %.1f |\n\n"+
		"%.2f of the full pull, the target is %.2f.\n", benchLayers, benchFiles, size/1e6, benchRounds,
		full.Milliseconds(), rounded(whole), float64(sent)/benchRounds/1e6, first.Milliseconds(), rounded(lazily),
		float64(lazySent)/benchRounds/1e6, ratio, benchTarget)
	if ratio > benchTarget {
		b.Errorf("the target is missed")
	}
}

func rounded(all []time.Duration) (out []int64) {
	for _, d := range all {
		out = append(out, d.Milliseconds())
	}
	return out
}

// firstLine runs a pod and returns the time from the pull of its image to the first line of the log.
func (n *node) firstLine(name, ref string) time.Duration {
	n.Helper()
	p := n.pod(name, false)
	defer p.remove()
	log := filepath.Join(p.config.LogDirectory, "main.log")
	start := time.Now()
	n.pull(ref)
	_, err := p.run("main", ref)
	must(n, err)
	for range 10000 {
		if file, err := os.Open(log); err == nil {
			lines := bufio.NewScanner(file)
			found := lines.Scan()
			must(n, file.Close())
			if found {
				return time.Since(start)
			}
		}
		time.Sleep(time.Millisecond)
	}
	n.Fatal("the application has written nothing for 10 s")
	return 0
}

// forget removes an image, and waits until the layers are deleted.
func (n *node) forget(ref string) {
	n.Helper()
	n.remove(ref)
	_, err := n.Images.ListImages(n.Context(), &cri.ListImagesRequest{})
	must(n, err)
	if left := n.layers(); left > 0 {
		n.Fatalf("%d layers are left", left)
	}
}
