package image_test

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/podd-project/podd/image"
)

// pullProcesses returns the processes that parent has started to pull.
func pullProcesses(t testing.TB, parent int) []int {
	t.Helper()
	var out []int
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil || len(lists) == 0 {
		t.Skip("this kernel does not list the children of a process")
	}
	for _, list := range lists {
		raw, _ := os.ReadFile(list) // the thread may have ended
		for field := range strings.FieldsSeq(string(raw)) {
			command, _ := os.ReadFile("/proc/" + field + "/cmdline")
			if pid, err := strconv.Atoi(field); err == nil && strings.HasPrefix(string(command), "podd-pull") {
				out = append(out, pid)
			}
		}
	}
	return out
}

// TestPullIsConfined looks at the process that pulls: what it may do, and that no program of PATH decompresses.
func TestPullIsConfined(t *testing.T) {
	reg := newRegistry(t)
	img := simple(t, "x")
	reg.push(t, "app:v1", img)
	arrived, proceed := hang(t, reg, "/blobs/"+layerDigest(t, img, 0))
	s := open(t, config(t, reg.host))
	done := make(chan error)
	go func() {
		_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
		done <- err
	}()
	<-arrived
	pids := pullProcesses(t, os.Getpid())
	if len(pids) != 1 {
		t.Fatalf("%d processes pull, want 1", len(pids))
	}
	proc := fmt.Sprintf("/proc/%d/", pids[0])
	status := readFile(t, proc+"status")
	for _, want := range []string{
		// CHOWN, DAC_OVERRIDE, FOWNER, FSETID, SYS_CHROOT, SYS_ADMIN, MKNOD, SETFCAP
		"CapPrm:\t000000008824001b", "CapEff:\t000000008824001b", "CapBnd:\t000000008824001b", "NoNewPrivs:\t1",
		"Seccomp:\t2",
	} {
		if !strings.Contains(status, want) {
			t.Errorf("status of the process lacks %q: %s", want, status)
		}
	}
	for variable := range strings.SplitSeq(readFile(t, proc+"environ"), "\x00") {
		if strings.HasPrefix(variable, "PATH=") {
			t.Errorf("environment of the process has %q, want no PATH", variable)
		}
	}
	if got := strings.TrimSpace(readFile(t, proc+"oom_score_adj")); got != "500" {
		t.Errorf("oom_score_adj = %s, want 500: the kernel should end a pull before podd", got)
	}
	proceed()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestNoDecompressorOfPath: programs named as decompressors in PATH are not run.
func TestNoDecompressorOfPath(t *testing.T) {
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	for _, name := range []string{"pigz", "unpigz", "gzip", "zstd", "xz"} {
		path := filepath.Join(dir, name)
		writeFile(t, path, "#!/bin/sh\n: >"+ran+"\nexit 1\n")
		if err := os.Chmod(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	pull(t, open(t, config(t, reg.host)), reg.host+"/app:v1")
	if fileExists(ran) {
		t.Error("a program of PATH was run, want none")
	}
}

// TestPullProcessKilled: a pull whose process dies fails, leaves nothing, and can be repeated.
func TestPullProcessKilled(t *testing.T) {
	reg := newRegistry(t)
	img := simple(t, "x")
	reg.push(t, "app:v1", img)
	arrived, proceed := hang(t, reg, "/blobs/"+layerDigest(t, img, 0))
	cfg := config(t, reg.host)
	s := open(t, cfg)
	done := make(chan error)
	go func() {
		_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
		done <- err
	}()
	<-arrived
	for _, pid := range pullProcesses(t, os.Getpid()) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "was killed (signal: killed)") {
		t.Errorf("error %v, want one that names the signal", err)
	}
	checkEmpty(t, s)
	checkNoFiles(t, filepath.Join(cfg.Root, "tmp"))
	proceed()
	pull(t, s, reg.host+"/app:v1")
}

// pullRole is the environment of a test binary that opens a store and pulls: root, host and reference.
const pullRole = "PODD_TEST_PULL"

// pullAsDaemon is what such a test binary does.
func pullAsDaemon(t *testing.T) {
	dir, ref, _ := strings.Cut(os.Getenv(pullRole), " ")
	host, _, _ := strings.Cut(ref, "/")
	s := open(t, configIn(t, dir, host))
	pull(t, s, ref)
}

// TestDaemonKilled: the process of a pull does not outlive the daemon.
func TestDaemonKilled(t *testing.T) {
	if os.Getenv(pullRole) != "" {
		pullAsDaemon(t)
		return
	}
	reg := newRegistry(t)
	img := simple(t, "x")
	reg.push(t, "app:v1", img)
	arrived, proceed := hang(t, reg, "/blobs/"+layerDigest(t, img, 0))
	defer proceed()
	daemon := exec.Command("/proc/self/exe", "-test.run=^TestDaemonKilled$")
	daemon.Env = append(os.Environ(), pullRole+"="+t.TempDir()+" "+reg.host+"/app:v1")
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	<-arrived
	pids := pullProcesses(t, daemon.Process.Pid)
	if len(pids) != 1 {
		t.Errorf("%d processes pull, want 1", len(pids))
	}
	if err := daemon.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = daemon.Wait() // killed
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("process %d ends with the daemon", pid), func() bool { return ended(pid) })
	}
}

// bomb returns a zstd frame of a tar with one file of size bytes, all zero. Its window is 512 MiB: a decoder keeps that
// much. The frame takes 4 bytes per 128 KiB.
func bomb(t testing.TB, size int) []byte {
	t.Helper()
	var header bytes.Buffer
	w := tar.NewWriter(&header)
	file := tar.Header{Name: "zeros", Mode: 0o644, Size: int64(size), Typeflag: tar.TypeReg}
	if err := w.WriteHeader(&file); err != nil {
		t.Fatal(err)
	}
	const block, raw, repeat = 128 << 10, 0 << 1, 1 << 1
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, (29 - 10) << 3} // magic, no flags, window of 2^29 bytes
	add := func(kind, size int, content ...byte) {
		head := binary.LittleEndian.AppendUint32(nil, uint32(kind|size<<3))
		frame = append(append(frame, head[:3]...), content...)
	}
	add(raw, header.Len(), header.Bytes()...)
	for range size / block {
		add(repeat, block, 0)
	}
	add(repeat|1, 1024, 0) // the last block: the end of the tar
	return frame
}

// TestDecompressionBomb: a layer that takes much memory to decompress hurts its own pull only.
func TestDecompressionBomb(t *testing.T) {
	reg := newRegistry(t)
	layer := static.NewLayer(bomb(t, 600<<20), types.OCILayerZStd)
	base := mutate.ConfigMediaType(mutate.MediaType(craft(t, nil), types.OCIManifestSchema1), types.OCIConfigJSON)
	img := appendLayer(t, base, layer)
	reg.push(t, "bomb:v1", img)
	cfg := config(t, reg.host)
	cfg.PullMemory = 256 << 20
	s := open(t, cfg)
	_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/bomb:v1"})
	if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "pull_memory") {
		t.Errorf("error %v, want a resource exhausted that names pull_memory", err)
	}
	checkNothingPulled(t, s, cfg)
}

// TestImageTooLarge: layers that unpack to more than the configuration allows fail their pull and leave nothing.
func TestImageTooLarge(t *testing.T) {
	big := tree{"big": strings.Repeat("x", 700<<10)}
	sparse := static.NewLayer(sparseTar(t), types.DockerUncompressedLayer)
	zeros := func(n int) v1.Layer { return static.NewLayer(make([]byte, n), types.DockerUncompressedLayer) }
	padded, half := zeros(1<<10+2<<20), []v1.Layer{zeros(120 << 10), zeros(121 << 10)} // tars without entries
	for name, c := range map[string]struct {
		img  v1.Image
		text string
	}{
		"bytes":        {craft(t, nil, tree{"big": strings.Repeat("x", 2<<20)}), "more than 1048576 bytes (max_image_bytes)"},
		"two layers":   {craft(t, nil, big, tree{"big2": big["big"]}), "more than 1048576 bytes"},
		"sparse bytes": {appendLayer(t, craft(t, nil), sparse), "more than 1048576 bytes"},
		"padding":      {appendLayer(t, craft(t, nil), padded), "more than 262144 bytes of headers and padding"},
		"paddings": {appendLayer(t, appendLayer(t, craft(t, nil), half[0]), half[1]),
			"more than 262144 bytes of headers and padding"},
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t)
			reg.push(t, "large:v1", c.img)
			cfg := config(t, reg.host)
			cfg.MaxImageBytes = 1 << 20
			s := open(t, cfg)
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/large:v1"})
			if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %v, want a resource exhausted with %q", err, c.text)
			}
			checkNothingPulled(t, s, cfg)
			small := simple(t, "small")
			reg.push(t, "small:v1", small)
			pull(t, s, reg.host+"/small:v1")
		})
	}
}

func appendLayer(t testing.TB, img v1.Image, l v1.Layer) v1.Image {
	t.Helper()
	out, err := mutate.AppendLayers(img, l)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// sparseTar returns a tar with a file of 1 GiB that has no data (GNU's old format).
func sparseTar(t testing.TB) []byte {
	t.Helper()
	head := make([]byte, 512)
	copy(head, "sparse")
	copy(head[100:], "0000644\x00")
	copy(head[108:], "0000000\x00")
	copy(head[116:], "0000000\x00")
	copy(head[124:], "00000000000\x00") // bytes that follow
	copy(head[136:], "00000000000\x00")
	head[156] = 'S'
	copy(head[257:], "ustar  \x00")
	copy(head[386:], "10000000000\x00") // a segment at the end ...
	copy(head[398:], "00000000000\x00") // ... without data
	copy(head[483:], "10000000000\x00") // the real size: 8^10
	sum := 8 * ' '
	for _, b := range head {
		sum += rune(b)
	}
	copy(head[148:], fmt.Sprintf("%06o\x00 ", sum))
	if h, err := tar.NewReader(bytes.NewReader(head)).Next(); err != nil || h.Size != 1<<30 {
		t.Fatalf("the test's tar: %+v, %v, want a file of 1 GiB", h, err)
	}
	return append(head, make([]byte, 1024)...)
}

// checkNothingPulled fails if a failed pull has left an image, a layer or a temporary file.
func checkNothingPulled(t testing.TB, s *image.Store, cfg setup) {
	t.Helper()
	list, err := s.List(t.Context())
	if err != nil || len(list) > 0 {
		t.Errorf("List = %v, %v, want nothing", list, err)
	}
	left, _ := filepath.Glob(filepath.Join(cfg.Root, "overlay", "*", "diff"))
	temp, _ := filepath.Glob(filepath.Join(cfg.Root, "tmp", "*"))
	if left = append(left, temp...); len(left) > 0 {
		t.Errorf("left by the pull: %q", left)
	}
}
