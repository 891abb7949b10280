package obstacle

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// running starts a process that has these files open.
func running(t *testing.T, files ...*os.File) int {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.ExtraFiles = files
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// opened returns a descriptor as a file.
func opened(t *testing.T, fd int, err error) *os.File {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "")
	t.Cleanup(func() { f.Close() })
	return f
}

func pair(t *testing.T, kind int) (one, two *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	return opened(t, fds[0], err), opened(t, fds[1], err)
}

func watching(t *testing.T, path string) *os.File {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	f := opened(t, fd, err)
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_CREATE); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFind: each thing that CRIU cannot save is found, and nothing else.
func TestFind(t *testing.T) {
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	saved := opened(t, event, err)
	context, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	unsaved := opened(t, context, err)
	stream, far := pair(t, unix.SOCK_STREAM)
	datagram, _ := pair(t, unix.SOCK_DGRAM)
	udp, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	harmless := opened(t, udp, err)
	for name, tt := range map[string]struct {
		files []*os.File
		want  []string
	}{
		"nothing":              {nil, nil},
		"event, UDP":           {[]*os.File{saved, harmless}, nil},
		"fsopen":               {[]*os.File{unsaved}, []string{`"[fscontext]"`}},
		"watch of root":        {[]*os.File{watching(t, "/")}, []string{"inotify"}},
		"watch of another":     {[]*os.File{watching(t, "/proc")}, nil},
		"both ends":            {[]*os.File{stream, far}, nil},
		"one end":              {[]*os.File{stream}, []string{"unix socket"}},
		"one end of datagrams": {[]*os.File{datagram}, []string{"unix socket"}},
		"all": {[]*os.File{watching(t, "/"), unsaved, stream},
			[]string{"fscontext", "inotify", "unix socket"}},
	} {
		got := Find(t.Context(), running(t, tt.files...))
		if len(got) != len(tt.want) {
			t.Errorf("%s: Find = %q, want %q", name, got, tt.want)
			continue
		}
		for i, text := range got {
			if !strings.Contains(text, tt.want[i]) || !strings.Contains(text, `("sleep")`) {
				t.Errorf("%s: Find = %q, want %q, and the process", name, got, tt.want)
			}
		}
	}
}

// TestFindIsBounded: no more of the lists of watches is read than the bound, which is said, and none when a watch of
// the root filesystem was found before. Nothing is looked at after the end of the context.
func TestFindIsBounded(t *testing.T) {
	root, err := os.Stat("/proc/self/root/.")
	if err != nil {
		t.Fatal(err)
	}
	stream, _ := pair(t, unix.SOCK_STREAM)
	pid := running(t, watching(t, "/"), watching(t, "/proc"), watching(t, "/"), stream)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx     context.Context
		watches int64
		want    string
	}{
		"all":       {t.Context(), maxWatches, watch},
		"too many":  {t.Context(), 10, tooMany},
		"cancelled": {ended, maxWatches, ""},
	} {
		s := search{
			ctx: tt.ctx, found: map[string]string{}, sockets: map[uint32]int{}, left: maxDescriptors,
			watches: tt.watches, root: device(root),
		}
		s.process(pid)
		if _, ok := s.found[tt.want]; len(s.found) > 1 || !ok && tt.want != "" || ok != (len(s.found) == 1) {
			t.Errorf("%s: found %q, want %q", name, s.found, tt.want)
		}
		if want := tt.want != ""; len(s.sockets) > 0 != want {
			t.Errorf("%s: sockets %v, want some: %t", name, s.sockets, want)
		}
		before := s.watches
		if s.watchesRoot(pid, "3"); tt.want == watch && s.watches != before {
			t.Errorf("%s: %d bytes were read after a watch was found", name, before-s.watches)
		}
	}
}

// TestFindInDescendants: a child has it.
func TestFindInDescendants(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sh -c 'echo; sleep 1000; true' 3<&3; true")
	stream, _ := pair(t, unix.SOCK_STREAM)
	cmd.ExtraFiles = []*os.File{stream}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range tree(cmd.Process.Pid) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		_ = cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if n := len(tree(cmd.Process.Pid)); n < 2 {
		t.Errorf("%d processes, want the shell and its child", n)
	}
	if got := Find(t.Context(), cmd.Process.Pid); len(got) != 1 {
		t.Errorf("Find = %q, want the socket", got)
	}
	if got := Find(t.Context(), 1<<30); got != nil {
		t.Errorf("Find of no process = %q, want nothing", got)
	}
}
