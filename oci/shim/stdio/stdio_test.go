package stdio

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/logfile"
	"github.com/podd-project/podd/oci/runc/conmon"
)

// running is a stdio server in this process, with the shim's ends of its pipes.
type running struct {
	bundle string
	done   chan struct{}
	stdout *os.File
	stderr *os.File
}

func run(t *testing.T, c Config) *running {
	t.Helper()
	r := &running{bundle: t.TempDir(), done: make(chan struct{})}
	if err := Prepare(r.bundle, c); err != nil {
		t.Fatal(err)
	}
	k, err := open(r.bundle)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		k.run()
	}()
	r.stdout = r.pipe(t, Stdout)
	if !c.Terminal {
		r.stderr = r.pipe(t, Stderr)
	}
	t.Cleanup(func() { r.end(t) })
	return r
}

func (r *running) pipe(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(r.bundle, name), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// end closes the output and waits for the server.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.stdout.Close()
	if r.stderr != nil {
		r.stderr.Close()
	}
	select {
	case <-r.done:
	case <-time.After(20 * time.Second):
		t.Fatal("the server still runs 20s after the end of the output")
	}
}

func attach(t *testing.T, r *running) *conmon.Conn {
	t.Helper()
	c, err := conmon.Attach(r.bundle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestKeepsOutput(t *testing.T) {
	logPath := filepath.Join(t.TempDir(), "0.log")
	r := run(t, Config{Log: logAt(t, logPath)})
	_, _ = r.stdout.WriteString("out\n")
	_, _ = r.stderr.WriteString("err\n")
	if OutputDone(r.bundle) {
		t.Error("OutputDone before the end of the output = true, want false")
	}
	r.end(t)
	if got := content(t, logPath); !strings.Contains(got, " stdout F out\n") || !strings.Contains(got, " stderr F err\n") {
		t.Errorf("log = %q, want the lines out and err", got)
	}
	if !OutputDone(r.bundle) {
		t.Error("OutputDone after the end of the output = false, want true")
	}
}

func TestClients(t *testing.T) {
	r := run(t, Config{})
	first, second := attach(t, r), attach(t, r)
	var got [2]struct{ stdout, stderr bytes.Buffer } // the order between two streams is undefined
	var readers sync.WaitGroup
	ready := make(chan struct{}, 2)
	for i, c := range []*conmon.Conn{first, second} {
		readers.Go(func() {
			for {
				data, stderr, err := c.Receive()
				if errors.Is(err, io.EOF) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				if stderr {
					got[i].stderr.Write(data)
					continue
				}
				if got[i].stdout.Len() == 0 {
					ready <- struct{}{}
				}
				got[i].stdout.Write(data)
			}
		})
	}
	// Clients enter some time after they have connected: until both have seen something.
	for n := 0; n < 2; {
		_, _ = r.stdout.WriteString(".")
		select {
		case <-ready:
			n++
		case <-time.After(time.Millisecond):
		}
	}
	big := strings.Repeat("0123456789abcdef", 4096) // more than one packet
	_, _ = r.stdout.WriteString(big)
	r.stdout.Close()
	_, _ = r.stderr.WriteString("end")
	r.end(t)
	readers.Wait()
	for i := range got {
		stdout, stderr := strings.TrimLeft(got[i].stdout.String(), "."), got[i].stderr.String()
		if stdout != big || stderr != "end" {
			t.Errorf("client %d got %d bytes of stdout and %q, want %d and %q", i, len(stdout), stderr, len(big), "end")
		}
	}
}

// TestSlowClient: a client that does not read is dropped, and the container does not wait.
func TestSlowClient(t *testing.T) {
	logPath := filepath.Join(t.TempDir(), "0.log")
	r := run(t, Config{Log: logAt(t, logPath)})
	slow := attach(t, r)
	line := strings.Repeat("x", 8191) + "\n"
	written := make(chan struct{})
	go func() {
		defer close(written)
		for range 2000 {
			_, _ = r.stdout.WriteString(line)
		}
	}()
	select {
	case <-written:
	case <-time.After(30 * time.Second):
		t.Fatal("the output was not read within 30s, want no wait for a client")
	}
	r.end(t)
	if n := strings.Count(content(t, logPath), " stdout F "); n != 2000 {
		t.Errorf("%d lines in the log, want 2000", n)
	}
	_ = slow.Close()
}

func TestStdin(t *testing.T) {
	for _, once := range []bool{true, false} {
		r := run(t, Config{Stdin: true, StdinOnce: once})
		in, err := os.OpenFile(filepath.Join(r.bundle, Stdin), os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		c := attach(t, r)
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 5)
		if _, err := io.ReadFull(in, buf); err != nil || string(buf) != "hello" {
			t.Errorf("stdin = %q, %v, want %q", buf, err, "hello")
		}
		if err := c.CloseStdin(); err != nil {
			t.Fatal(err)
		}
		if once {
			if _, err := in.Read(buf); !errors.Is(err, io.EOF) {
				t.Errorf("stdin after the client's end = %v, want %v", err, io.EOF)
			}
		} else {
			again := attach(t, r)
			if _, err := again.Write([]byte("again")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(in, buf); err != nil || string(buf) != "again" {
				t.Errorf("stdin = %q, %v, want %q", buf, err, "again")
			}
		}
		in.Close()
		r.end(t)
	}
}

func TestReopenBySocket(t *testing.T) {
	logPath := filepath.Join(t.TempDir(), "0.log")
	r := run(t, Config{Log: logAt(t, logPath), Terminal: true})
	if err := os.Rename(logPath, logPath+".1"); err != nil {
		t.Fatal(err)
	}
	if err := Reopen(t.Context(), r.bundle); err != nil {
		t.Fatal(err)
	}
	_, _ = r.stdout.WriteString("new\n")
	r.end(t)
	if got := content(t, logPath); !strings.HasSuffix(got, "F new\n") {
		t.Errorf("log = %q, want it to end with %q", got, "F new\n")
	}
	if err := Reopen(t.Context(), r.bundle); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Reopen without a server = %v, want a failed precondition", err)
	}
	if err := Reopen(t.Context(), filepath.Join(r.bundle, "absent")); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Reopen without a bundle = %v, want a failed precondition", err)
	}
}

func TestReopenReportsTheLog(t *testing.T) {
	logPath := filepath.Join(t.TempDir(), "0.log")
	r := run(t, Config{Log: logAt(t, logPath), Terminal: true})
	if err := errors.Join(os.Remove(logPath), os.Mkdir(logPath, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := Reopen(t.Context(), r.bundle); err == nil || errdefs.IsFailedPrecondition(err) ||
		!strings.Contains(err.Error(), logPath) {
		t.Errorf("Reopen = %v, want an error that names %s", err, logPath)
	}
}

func TestOpenRefuses(t *testing.T) {
	bundle := t.TempDir()
	if _, err := open(bundle); err == nil {
		t.Error("open without a configuration succeeded, want an error")
	}
	if err := Prepare(bundle, Config{Log: logfile.Log{Dir: logAt(t, bundle+"/log").Dir, Name: "no/log"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := open(bundle); err == nil {
		t.Error("open with a log that cannot be created succeeded, want an error")
	}
	if err := Prepare(bundle, Config{}); err == nil {
		t.Error("second Prepare succeeded, want an error")
	}
	if err := os.WriteFile(filepath.Join(bundle, ConfigFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(bundle); err == nil {
		t.Error("open with a damaged configuration succeeded, want an error")
	}
}
