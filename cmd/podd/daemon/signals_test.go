package daemon

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sirupsen/logrus/hooks/test"
)

func TestSignals(t *testing.T) {
	log, hook := test.NewNullLogger()
	exits := make(chan int, 1)
	dir := ""
	reloads := 0
	s := signals{
		log: log, dumpDir: func() string { return dir }, reload: func() { reloads++ },
		exit: func(code int) { exits <- code },
	}
	ctx, cancel := context.WithCancelCause(t.Context())

	s.handle(ctx, syscall.SIGHUP, cancel)
	s.handle(ctx, syscall.SIGPIPE, cancel)
	s.handle(ctx, syscall.SIGUSR1, cancel)
	if ctx.Err() != nil || len(exits) > 0 {
		t.Fatal("stopped by SIGHUP, SIGPIPE or SIGUSR1")
	}
	if reloads != 1 {
		t.Errorf("%d reloads after SIGHUP, want 1", reloads)
	}
	if e := hook.LastEntry(); !strings.Contains(e.Data["stacks"].(string), "TestSignals") {
		t.Errorf("last log entry = %v, want stacks", e)
	}
	dir = t.TempDir()
	s.handle(ctx, syscall.SIGUSR1, cancel)
	checkDump(t, dir)

	s.handle(ctx, syscall.SIGTERM, cancel)
	if !errors.Is(context.Cause(ctx), errStopped) || len(exits) > 0 {
		t.Errorf("cause after SIGTERM = %v, want errStopped", context.Cause(ctx))
	}
	s.handle(ctx, syscall.SIGINT, cancel)
	if code := <-exits; code != 128+int(syscall.SIGINT) {
		t.Errorf("exit status of the second signal = %d, want %d", code, 128+int(syscall.SIGINT))
	}
}

// checkDump checks that dir has one goroutine dump, with mode 0600.
func checkDump(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "goroutines-*.txt"))
	if err != nil || len(files) != 1 {
		t.Fatalf("dumps = %v, %v, want one", files, err)
	}
	info, err := os.Stat(files[0])
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, want 0600 (%v)", info.Mode(), err)
	}
	if data, err := os.ReadFile(files[0]); err != nil || !bytes.Contains(data, []byte("goroutine ")) {
		t.Errorf("dump = %q, %v, want goroutines", data, err)
	}
}

func TestSignalsAreWatched(t *testing.T) {
	log, _ := test.NewNullLogger()
	s := signals{log: log, dumpDir: func() string { return "" }, exit: func(int) {}}
	ctx, stop := s.watch(t.Context())
	defer stop()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), errStopped) {
		t.Errorf("cause = %v, want errStopped", context.Cause(ctx))
	}
}
