package shim

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bootstrap "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/driver/socket"
	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/oci/subprocess"
)

func encode(t *testing.T, r *bootstrap.BootstrapResult) string {
	t.Helper()
	b, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestParseAnswer(t *testing.T) {
	const path = "/run/containerd/s/0123"
	for name, tt := range map[string]struct {
		out     string
		version int32
	}{
		"bare":     {"unix://" + path, 2},
		"newline":  {"unix://" + path + "\n", 2},
		"json":     {`{"version":3,"address":"unix://` + path + `","protocol":"ttrpc"}`, 3},
		"json 2":   {`{"version":2,"address":"unix://` + path + `","protocol":"ttrpc","new":{}}`, 2},
		"protobuf": {encode(t, &bootstrap.BootstrapResult{Version: 3, Address: "unix://" + path, Protocol: "ttrpc"}), 3},
		"upper":    {encode(t, &bootstrap.BootstrapResult{Version: 2, Address: "unix://" + path, Protocol: "TTRPC"}), 2},
	} {
		got, err := parseStartAnswer([]byte(tt.out))
		if err != nil || got != (endpoint{path, tt.version}) {
			t.Errorf("%s: parseStartAnswer = %+v, %v, want %s, version %d", name, got, err, path, tt.version)
		}
	}
	for name, out := range map[string]string{
		"nothing":     "",
		"words":       "containerd-shim: cannot start",
		"abstract":    "unix://@/containerd-shim/x.sock",
		"old":         "@/containerd-shim/x.sock\x00",
		"relative":    "unix://run/x.sock",
		"not clean":   "unix:///run/../etc/x.sock",
		"nul":         "unix:///run/x\x00y",
		"long":        "unix:///" + strings.Repeat("a", 108),
		"vsock":       `{"version":3,"address":"vsock://3:1024","protocol":"ttrpc"}`,
		"grpc":        `{"version":3,"address":"unix:///run/x","protocol":"grpc"}`,
		"version 1":   `{"version":1,"address":"unix:///run/x","protocol":"ttrpc"}`,
		"version 4":   `{"version":4,"address":"unix:///run/x","protocol":"ttrpc"}`,
		"broken json": `{"version":3`,
		"no address":  `{"version":3,"protocol":"ttrpc"}`,
		"two":         "unix:///run/x\nunix:///run/y\x00",
	} {
		if got, err := parseStartAnswer([]byte(out)); err == nil {
			t.Errorf("%s: parseStartAnswer = %+v, want an error", name, got)
		}
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte(`{"version":3,"address":"unix:///run/x","protocol":"ttrpc"}`))
	f.Add([]byte("unix:///run/x"))
	f.Add([]byte("\x08\x03\x12\x0dunix:///run/x\x1a\x05ttrpc"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := parseStartAnswer(b)
		if err == nil && (!filepath.IsAbs(e.address) || len(e.address) > socket.MaxPath || e.version < 2 || e.version > 3) {
			t.Errorf("parseStartAnswer(%q) = %+v, want an absolute address and version 2 or 3", b, e)
		}
	})
}

func TestCheckSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkSocket(path); err != nil {
		t.Errorf("checkSocket = %v, want nil", err)
	}
	c, err := dialSocket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := dialSocket(t.Context(), path); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("dial of a socket with mode 0666 = %v, want a failed precondition", err)
	}
	if err := removeSocket(path); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("a socket with mode 0666 was removed: %v, want it kept", err)
	}
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(path, link)); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{file, link, dir, filepath.Join(dir, "absent"), ""} {
		if err := checkSocket(p); err == nil {
			t.Errorf("checkSocket(%q) = nil, want an error", p)
		}
		if err := removeSocket(p); err != nil {
			t.Errorf("removeSocket(%q) = %v, want nil", p, err)
		}
	}
	if _, err := os.Lstat(file); err != nil {
		t.Errorf("removeSocket removed a regular file: %v, want it kept", err)
	}
}

func TestShimName(t *testing.T) {
	for path, want := range map[string][2]string{
		"/usr/bin/containerd-shim-runc-v2": {"runc", "v2"}, "containerd-shim-runsc-v1": {"runsc", "v1"},
		"containerd-shim-kata-qemu-v2": {"kata-qemu", "v2"}, "/opt/own": {"unknown", "v1"}, "containerd-shim-x": {"x", "v1"},
	} {
		if name, version := shimName(path); name != want[0] || version != want[1] {
			t.Errorf("shimName(%q) = %s, %s, want %s, %s", path, name, version, want[0], want[1])
		}
	}
}

func TestParseVersion(t *testing.T) {
	for out, want := range map[string]string{
		"containerd-shim-runc-v2:\n  Version:  2.4.2\n  Revision: x\n": "containerd-shim-runc-v2 2.4.2",
		"Kata Containers containerd shim: 3.0\n":                       "Kata Containers containerd shim: 3.0",
		"":                                                             "containerd-shim-runc-v2",
		"\xff\n":                                                       "?",
	} {
		if got := parseVersion("/bin/containerd-shim-runc-v2", []byte(out)); got != want {
			t.Errorf("parseVersion(%q) = %q, want %q", out, got, want)
		}
	}
	if got := parseVersion("x", []byte(strings.Repeat("v", 9999))); len(got) != versionLimit {
		t.Errorf("parseVersion of 9999 bytes returned %d, want %d", len(got), versionLimit)
	}
}

func TestExitOf(t *testing.T) {
	past := time.Now().Add(-time.Hour)
	for _, tt := range []struct {
		code  uint32
		at    *timestamppb.Timestamp
		want  int32
		known bool
		now   bool
	}{
		{0, timestamppb.New(past), 0, true, false},
		{255, timestamppb.New(past), 255, true, false},
		{256, timestamppb.New(past), 255, false, false},
		{1 << 31, nil, 255, false, true},
		{1, &timestamppb.Timestamp{Seconds: 1 << 60}, 1, true, true},
		{1, timestamppb.New(time.Now().Add(time.Hour)), 1, true, true},
		{1, timestamppb.New(time.Time{}), 1, true, true},
	} {
		got := parseExit(tt.code, tt.at)
		if got.Code != tt.want || got.Known != tt.known || (time.Since(got.At) < time.Minute) != tt.now {
			t.Errorf("parseExit(%d, %v) = %+v, want code %d, known: %v, now: %v", tt.code, tt.at, got, tt.want, tt.known, tt.now)
		}
	}
}

func TestRecord(t *testing.T) {
	b := bundle{driver.Bundle(t.TempDir())}
	if _, err := b.load(); !errdefs.IsNotFound(err) {
		t.Errorf("load without a record = %v, want not found", err)
	}
	if err := b.save(record{Owner: "c"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.created(); !errdefs.IsNotFound(err) {
		t.Errorf("created of an unfinished creation = %v, want not found", err)
	}
	for _, bad := range []string{"", "{", "[]", `{"v":99,"owner":"c"}`, `{"v":1,"owner":"../x"}`, `{"v":1}`} {
		if err := os.WriteFile(b.record(), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if rec, err := b.load(); err == nil {
			t.Errorf("load of %q = %+v, want an error", bad, rec)
		}
	}
	old, _ := json.Marshal(map[string]any{
		"v": 1, "boot": "another", "owner": "c", "init": map[string]any{"pid": 1, "start": 1},
	})
	if err := os.WriteFile(b.record(), old, 0o600); err != nil {
		t.Fatal(err)
	}
	rec, err := b.created()
	if err != nil || rec.Init.Pid != 0 {
		t.Errorf("record of another boot = %+v, %v, want no init process", rec, err)
	}
}

func TestRunProgram(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	script := func(text string) *exec.Cmd { return exec.Command("/bin/sh", "-c", text) }
	out, err := runProgram(ctx, "flood", script("head -c 1000000 /dev/zero"))
	if err != nil || len(out) != answerLimit {
		t.Errorf("runProgram returned %d bytes, %v, want %d, none", len(out), err, answerLimit)
	}
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	begin := time.Now()
	_, err = runProgram(short, "hang", script("sleep 100 & wait"))
	if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > 10*time.Second {
		t.Errorf("runProgram returned %v after %s, want %v in 50ms", err, took, context.DeadlineExceeded)
	}
	_, err = runProgram(ctx, "fail", script("echo why >&2; exit 3"))
	if err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("runProgram: %v, want an error with the text %q", err, "why")
	}
}

// TestUnkillableShim: a call that runs the shim binary does not wait for one that survives SIGKILL, stuck in the
// kernel.
func TestUnkillableShim(t *testing.T) {
	u := ocitest.NewUnkillable(t)
	binary := filepath.Join(t.TempDir(), "containerd-shim-stuck-v1")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\n"+u.Script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := New(Config{Name: "stuck", Path: binary, Log: logrus.New()})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		u.WaitFrozen(t)
	}()
	returned := make(chan error, 1)
	go func() { returned <- r.Probe(ctx) }()
	select {
	case err := <-returned:
		if !errors.Is(err, subprocess.ErrUnkillable) {
			t.Errorf("Probe: %v, want %v", err, subprocess.ErrUnkillable)
		}
	case <-time.After(30 * time.Second):
		t.Error("Probe has not returned after 30s")
		u.Thaw()
		<-returned
	}
}
