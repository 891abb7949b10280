package ocitest

import (
	"fmt"
	"io"
	"testing"

	"github.com/podd-project/podd/oci"
)

// zeros is endless input.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// inputLength is more than the buffers on the way hold. The line of a machine of User-Mode Linux takes seconds for it.
const inputLength = 1_000_000

// LongInput wants a command to get all of its input, also after it has closed its output.
func LongInput(t *testing.T, newHarness NewHarness) {
	h := newHarness(t)
	r := h.New()
	run(t, h, r, "c", "sleep", "1000")
	for _, script := range []string{"", "exec >&- 2>&-; sleep 0.3; "} {
		p := process(h, "sh", "-c", script+"cat | wc -c >/bytes; exit 3")
		code, err := r.Exec(limit(t), "c", p,
			oci.Streams{Stdin: io.LimitReader(zeros{}, inputLength), Stdout: io.Discard, Stderr: io.Discard})
		got, catErr := r.ExecSync(limit(t), oci.ExecRequest{ID: "c", Process: process(h, "cat", "/bytes")})
		must(t, "exec cat", catErr)
		if err != nil || code != 3 || string(got.Stdout) != fmt.Sprintln(inputLength) {
			t.Errorf("%q: exec = %d, %v, %q bytes read, want 3, nil, %d", script, code, err, got.Stdout, inputLength)
		}
	}
}
