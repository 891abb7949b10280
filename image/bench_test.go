package image_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image"
)

// BenchmarkRootfs makes and releases root filesystems, alone and with 300 others mounted.
func BenchmarkRootfs(b *testing.B) {
	reg := newRegistry(b)
	var trees []tree
	for i := range 5 {
		trees = append(trees, tree{fmt.Sprintf("f%d", i): "x"})
	}
	reg.push(b, "app:v1", craft(b, nil, trees...))
	s := open(b, diskConfig(b, reg.host))
	img, err := s.Pull(b.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
	if err != nil {
		b.Fatal(err)
	}
	ids := []specs.LinuxIDMapping{{HostID: 100000, Size: 65536}}
	cycle := func(r image.RootfsRequest) func(*testing.B) {
		return func(b *testing.B) {
			r.ContainerID, r.ImageID = "bench", img.ID
			for b.Loop() {
				if _, err := s.Rootfs(b.Context(), r); err != nil {
					b.Fatal(err)
				}
				if err := s.Release(b.Context(), r.ContainerID); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("plain", cycle(image.RootfsRequest{}))
	b.Run("userns", cycle(image.RootfsRequest{UIDs: ids, GIDs: ids}))
	for i := range 300 {
		rootfs(b, s, fmt.Sprintf("other%d", i), img.ID)
	}
	b.Run("beside300", cycle(image.RootfsRequest{}))
}

// BenchmarkUpperDir finds a container's writable layer, which costs one lstat more than a fixed name: podd once named
// it otherwise, and containers keep their name.
func BenchmarkUpperDir(b *testing.B) {
	s := open(b, config(b, "registry.test"))
	current := s.UpperDir("current")
	if err := os.MkdirAll(current, 0o755); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if s.UpperDir("current") != current {
			b.Fatal("another directory")
		}
	}
}

// BenchmarkPullPresent measures the pull of a pod with imagePullPolicy Always when nothing has changed.
func BenchmarkPullPresent(b *testing.B) {
	reg := newRegistry(b)
	reg.push(b, "app:v1", craft(b, nil, tree{"a": "1"}, tree{"b": "2"}, tree{"c": "3"}))
	s := open(b, config(b, reg.host))
	for b.Loop() {
		if _, err := s.Pull(b.Context(), image.PullRequest{Ref: reg.host + "/app:v1"}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPull pulls and removes an image of one small layer.
func BenchmarkPull(b *testing.B) {
	reg := newRegistry(b)
	reg.push(b, "app:v1", simple(b, "x"))
	benchmarkPull(b, open(b, config(b, reg.host)), reg.host+"/app:v1")
}

// BenchmarkPullLayers pulls and removes an image of 40 layers of 1 MiB.
func BenchmarkPullLayers(b *testing.B) {
	const layers, size = 40, 1 << 20
	reg := newRegistry(b)
	var trees []tree
	for i := range layers {
		content := make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(content) // never fails
		trees = append(trees, tree{fmt.Sprintf("f%d", i): string(content)})
	}
	reg.push(b, "app:v1", craft(b, nil, trees...))
	benchmarkPull(b, open(b, config(b, reg.host)), reg.host+"/app:v1")
}

// benchmarkPull pulls and removes an image, and reports the processor time of all of it, the registry's too, which
// depends less than the duration on what else the machine does.
func benchmarkPull(b *testing.B, s *image.Store, ref string) {
	start := usedCPU(b)
	for b.Loop() {
		pull(b, s, ref)
		if err := s.Remove(b.Context(), ref); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(usedCPU(b)-start)/float64(b.N)/float64(time.Millisecond), "cpu-ms/op")
}

// BenchmarkPullFiles pulls an image of 8 layers of 2,000 files (PULL_FILES), 3 KiB each in the mean, of words: all
// of it new, or its last layer. It reports the processor time of the pull, not of the removal.
func BenchmarkPullFiles(b *testing.B) {
	const layers, shared = 8, 7
	files := 2000
	if text := os.Getenv("PULL_FILES"); text != "" {
		var err error
		if files, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	for _, how := range []compression.Compression{compression.GZip, compression.ZStd} {
		reg := newRegistry(b)
		var all []v1.Layer
		for i := range layers {
			all = append(all, layerOf(b, wordFiles(i, files), how))
		}
		reg.push(b, "base:v1", imageOf(b, nil, all[:shared]...))
		reg.push(b, "app:v1", imageOf(b, nil, all...))
		all = nil
		b.Run(string(how)+"/new", func(b *testing.B) {
			benchmarkPullOnly(b, open(b, config(b, reg.host)), reg.host+"/app:v1")
		})
		b.Run(string(how)+"/shared", func(b *testing.B) {
			s := open(b, config(b, reg.host))
			pull(b, s, reg.host+"/base:v1")
			benchmarkPullOnly(b, s, reg.host+"/app:v1")
		})
	}
}

// wordFiles returns n files of 100 bytes to 6 KiB in n/50 directories. Their content compresses to a third.
func wordFiles(seed, n int) tree {
	random := rand.New(rand.NewPCG(uint64(seed), 1))
	words := make([]string, 4000)
	for i := range words {
		words[i] = strconv.FormatUint(random.Uint64N(1<<40), 36)
	}
	out := tree{}
	for i := range n {
		var text strings.Builder
		for size := 100 + random.IntN(6<<10); text.Len() < size; {
			text.WriteString(words[random.IntN(len(words))])
			text.WriteByte(' ')
		}
		dir := fmt.Sprintf("usr/lib/layer%d/dir%d/", seed, i/50)
		out[dir] = ""
		out[fmt.Sprintf("%sfile%d", dir, i)] = text.String()
	}
	return out
}

// benchmarkPullOnly is benchmarkPull without the removal.
func benchmarkPullOnly(b *testing.B, s *image.Store, ref string) {
	b.StopTimer()
	b.ResetTimer()
	var used time.Duration
	for range b.N {
		b.StartTimer()
		start := usedCPU(b)
		pull(b, s, ref)
		used += usedCPU(b) - start
		b.StopTimer()
		if err := s.Remove(b.Context(), ref); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(used)/float64(b.N)/float64(time.Millisecond), "cpu-ms/op")
}

// usedCPU is the processor time of this process and of its children that have ended.
func usedCPU(b *testing.B) (sum time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var used unix.Rusage
		if err := unix.Getrusage(who, &used); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	return sum
}
