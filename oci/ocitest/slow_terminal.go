package ocitest

import (
	"io"
	"testing"
	"time"

	"github.com/podd-project/podd/oci"
)

// slowClient takes nothing for two seconds, and then counts the bytes of the output.
type slowClient struct {
	begin time.Time
	bytes int
}

func (c *slowClient) Write(p []byte) (int, error) {
	time.Sleep(time.Until(c.begin.Add(2 * time.Second)))
	c.bytes += len(p)
	return len(p), nil
}

// much is more output than any buffer on the way holds, and muchScript writes that.
const (
	much       = 8_000_000
	muchScript = `head -c 8000000 /dev/zero | tr "\0" x; exit 3`
)

// SlowTerminal tests clients of terminals that do not keep up with the output: a command waits for its client, and a
// container for a while.
func SlowTerminal(t *testing.T, newHarness NewHarness) {
	t.Run("Exec", func(t *testing.T) {
		h := newHarness(t)
		r := h.New()
		run(t, h, r, "c", "sleep", "1000")
		p, client := process(h, "sh", "-c", muchScript), &slowClient{begin: time.Now()}
		p.Terminal = true
		code, err := r.Exec(limit(t), "c", p, oci.Streams{Stdout: client})
		if err != nil || code != 3 || client.bytes != much {
			t.Errorf("exec = %d, %v, %d bytes, want 3, nil, %d bytes", code, err, client.bytes, much)
		}
	})
	t.Run("Attach", func(t *testing.T) {
		h := newHarness(t)
		r, s := h.New(), h.Spec("sh", "-c", "read x; "+muchScript)
		s.Process.Terminal = true
		create(t, r, oci.CreateRequest{ID: "c", Spec: s, Terminal: true, Stdin: true})
		must(t, "start", r.Start(limit(t), "c"))
		in, user := io.Pipe()
		defer user.Close()
		go func() { _, _ = io.WriteString(user, "\n") }()
		client := &slowClient{begin: time.Now()}
		err := r.Attach(limit(t), "c", oci.Streams{Stdin: in, Stdout: client, Resize: make(chan oci.Size)})
		if err != nil || client.bytes < much {
			t.Errorf("attach = %v, %d bytes, want nil, at least %d bytes", err, client.bytes, much)
		}
	})
}
