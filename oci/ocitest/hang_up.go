package ocitest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/podd-project/podd/oci"
)

// Stubborn makes a command that gets no SIGHUP.
const Stubborn = "trap '' HUP;"

// HangUp tests commands whose client is gone: the command ends, soon, and what its user has left behind goes on. Each
// script is run before the command.
func HangUp(t *testing.T, newHarness NewHarness, scripts ...string) {
	h := newHarness(t)
	r := h.New()
	run(t, h, r, "c", "sleep", "1000")
	for _, script := range scripts {
		for _, terminal := range []bool{true, false} {
			p := process(h, "sh", "-c", "(trap '' HUP; exec sleep 1001) & setsid sleep 1002 & sleep 0.5; "+script+
				" echo up; exec sleep 1003")
			p.Terminal = terminal
			gone := errors.New("gone")
			ctx, cancel := context.WithCancelCause(limit(t))
			var out Output
			done := make(chan error, 1)
			go func() {
				_, err := r.Exec(ctx, "c", p, oci.Streams{Stdout: &out})
				done <- err
			}()
			out.WaitFor(t, "up")
			cancel(gone)
			if err := <-done; !errors.Is(err, gone) {
				t.Errorf("exec of a client that is gone = %v, want %v", err, gone)
			}
			left, err := r.ExecSync(limit(t), oci.ExecRequest{ID: "c", Process: process(h, "ps", "-o", "args")})
			must(t, "exec ps", err)
			for command, want := range map[string]bool{"sleep 1001": true, "sleep 1002": true, "sleep 1003": false} {
				if got := strings.Contains(string(left.Stdout), command); got != want {
					t.Errorf("%q, terminal %v: %s runs: %v, want %v", script, terminal, command, got, want)
				}
			}
			_, err = r.ExecSync(limit(t), oci.ExecRequest{ID: "c", Process: process(h, "sh", "-c",
				"kill -9 $(ps -o pid,args | grep 'sleep 100[12]' | grep -v grep | cut -c 1-5)")})
			must(t, "exec kill", err)
		}
	}
}
