package main

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/cmd/podd/settings"
)

// TestClientOfAWrongConfiguration: the daemon's directory is found as long as the file that names it can be read.
func TestClientOfAWrongConfiguration(t *testing.T) {
	file := tree(t, map[string]string{
		"podd.toml": "run = \"/run/here\"\n[log]\nlevel = \"loud\"\n", "podd.toml.d/1.toml": "run = [\n",
	})
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "/run/here/admin.sock"},
		{[]string{"--run", "/run/flag"}, "/run/flag/admin.sock"},
		{[]string{"--set", "run=/run/set"}, "/run/set/admin.sock"},
	} {
		_, errs, code := command(append([]string{"status", "--config", file}, c.args...)...)
		if code != exitFailure || !strings.Contains(errs, "no daemon listens on "+c.want) {
			t.Errorf("status %v = %d, %q, want 1 and %s", c.args, code, errs, c.want)
		}
	}
}

// TestNoReloadWhileStopping: podd waits for a reload in progress, after which none begins.
func TestNoReloadWhileStopping(t *testing.T) {
	d, loads := &daemon{}, 0
	entered, leave := make(chan struct{}), make(chan struct{})
	d.load = func() (*settings.Loaded, error) {
		loads++
		close(entered)
		<-leave
		return nil, errors.New("broken")
	}
	d.log = logrus.New()
	d.current.Store(&generation{number: 1})
	ctx, cancel := context.WithCancel(t.Context())
	reloaded, awaited := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := d.reload(ctx, nil)
		reloaded <- err
	}()
	<-entered
	cancel()
	go func() {
		d.awaitReload()
		close(awaited)
	}()
	select {
	case <-awaited:
		t.Error("awaitReload() returned during a reload")
	case <-time.After(50 * time.Millisecond):
	}
	close(leave)
	<-awaited
	if err := <-reloaded; err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("reload in progress = %v, want its own error", err)
	}
	if _, err := d.reload(ctx, nil); !errors.Is(err, context.Canceled) || loads != 1 {
		t.Errorf("reload of a podd that stops = %v after %d loads, want %v and one", err, loads, context.Canceled)
	}
}

// TestReloadCommand reloads a real daemon by command and by signal.
func TestReloadCommand(t *testing.T) {
	s := newSite(t)
	d := s.start(t, nil)
	reload := func() (string, int) {
		cmd := s.command("reload")
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := reload(); code != 0 || out != "generation 2, nothing changed\n" {
		t.Errorf("reload = %q, %d, want generation 2, nothing changed", out, code)
	}
	s.config(t, "[log]\nlevel = \"debug\"\n[image]\npinned_images = [\"a\"]\n")
	if out, code := reload(); code != 0 || out != "generation 3, changed: image.pinned_images, log.level\n" {
		t.Errorf("reload = %q, %d, want generation 3 and the changed keys", out, code)
	}
	s.config(t, "[log]\nlevel = \"loud\"\n")
	d.signal(t, syscall.SIGHUP)
	d.log.expect(t, "failed to reload the configuration, keeping the present one")
	if out, code := reload(); code != exitFailure || !strings.Contains(out, "is not reloaded: log.level (") {
		t.Errorf("reload of a wrong file = %q, %d, want 1 and the key", out, code)
	}
	status, err := s.command("status").CombinedOutput()
	if err != nil || !strings.Contains(string(status), `configuration: generation 3, the last reload was refused: `) ||
		!strings.Contains(string(status), `"loud" is none of`) {
		t.Errorf("status = %v\n%s\nwant generation 3, and the error", err, status)
	}
	s.config(t, "[log]\nlevel = \"info\"\n")
	d.signal(t, syscall.SIGHUP)
	d.log.expect(t, `"generation":4`)
	status, err = s.command("status").CombinedOutput()
	if err != nil || !strings.Contains(string(status), "configuration: generation 4, loaded ") {
		t.Errorf("status = %v\n%s\nwant generation 4", err, status)
	}
}
