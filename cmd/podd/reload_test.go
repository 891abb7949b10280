package main

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/podd-project/podd/image"
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
	wrong := map[string]string{"blockio_config_file": "[runtime]\nblockio_config_file = \"/none\"\n"}
	if image.QuotaCheck(image.Config{MaxWritableBytes: 1 << 20})(s.dir) != nil {
		wrong["max_writable_bytes"] = "[image]\nmax_writable_bytes = 1048576\n"
	}
	for key, config := range wrong {
		s.config(t, config)
		if out, code := reload(); code != exitFailure || !strings.Contains(out, key) {
			t.Errorf("reload with %s = %q, %d, want 1 and the key", config, out, code)
		}
	}
	s.config(t, "[log]\nlevel = \"loud\"\n")
	d.signal(t, syscall.SIGHUP)
	d.log.expect(t, "failed to reload the configuration, keeping the present one")
	if out, code := reload(); code != exitFailure || !strings.Contains(out, "is not reloaded: log.level (") {
		t.Errorf("reload of a wrong file = %q, %d, want 1 and the key", out, code)
	}
	status, err := s.command("status").CombinedOutput()
	if err != nil || !strings.Contains(string(status), `configuration: generation 3, the last reload was refused: `) ||
		!strings.Contains(string(status), `"loud" is not one of`) {
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
