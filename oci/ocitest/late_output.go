package ocitest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/podd-project/podd/oci"
)

// LateOutput wants a client to get the output of children of a command after its exit, until they pause for long or the
// client is gone.
func LateOutput(t *testing.T, newHarness NewHarness) {
	h := newHarness(t)
	r := h.New()
	run(t, h, r, "c", "sleep", "1000")
	exec := func(ctx context.Context, out *Output, script string) error {
		code, err := r.Exec(ctx, "c", process(h, "sh", "-c", script), oci.Streams{Stdout: out})
		if err == nil && code != 3 {
			t.Errorf("%s: code = %d, want 3", script, code)
		}
		return err
	}
	var lines Output
	err := exec(limit(t), &lines, "(for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.2; done) & exit 3")
	if got, want := lines.String(), "1\n2\n3\n4\n5\n6\n7\n8\n9\n"; err != nil || got != want {
		t.Errorf("output of a child = %q, %v, want %q", got, err, want)
	}

	var once Output
	begin := time.Now()
	err = exec(limit(t), &once, "(echo once; sleep 1000) & exit 3")
	if took := time.Since(begin); err != nil || once.String() != "once\n" || took > 20*time.Second {
		t.Errorf("output of a child that pauses = %q, %v after %s, want once, soon", once.String(), err, took)
	}

	const chatter = "(for i in 1 2 3 4 5 6; do echo x; sleep 0.2; done; echo 3; while echo x; do sleep 0.1; done) & exit 3"
	var endless Output
	ctx, cancel := context.WithCancelCause(limit(t))
	left := make(chan error, 1)
	go func() { left <- exec(ctx, &endless, chatter) }()
	endless.WaitFor(t, "3") // after the exit
	cancel(errors.New("client is gone"))
	select {
	case <-left:
	case <-time.After(outputTime):
		t.Errorf("exec of a client that is gone runs for %s, with a child that writes", outputTime)
	}
}
