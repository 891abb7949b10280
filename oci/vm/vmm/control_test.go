package vmm

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// monitorOf is a connection to a QEMU that greets, and answers each command with the next of these lines.
func monitorOf(t *testing.T, answers ...string) *control {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	go func() {
		_, _ = io.WriteString(theirs, `{"QMP": {"version": {}, "capabilities": []}}`+"\n")
		commands := bufio.NewScanner(theirs)
		for _, a := range append([]string{`{"return": {}}`}, answers...) {
			if commands.Scan() {
				_, _ = io.WriteString(theirs, a+"\n")
			}
		}
		_ = theirs.Close()
	}()
	return &control{conn: ours}
}

// TestControl: events before an answer are skipped, and errors are QEMU's.
func TestControl(t *testing.T) {
	c := monitorOf(t, `{"event": "RESUME", "data": {}}`+"\n"+`{"return": 7}`,
		`{"error": {"class": "GenericError", "desc": "no such device"}}`)
	var got int
	if err := c.run("query", nil, &got); err != nil || got != 7 {
		t.Errorf("run = %d, %v, want 7", got, err)
	}
	if err := c.run("query", nil, nil); err == nil || !strings.Contains(err.Error(), "no such device") {
		t.Errorf("run = %v, want QEMU's error", err)
	}
	if err := c.run("query", nil, nil); err == nil {
		t.Error("run of a QEMU that has ended = nil, want an error")
	}
}

// TestControlIsBounded: a QEMU that a guest has taken over cannot hold the shim or fill its memory.
func TestControlIsBounded(t *testing.T) {
	for name, answer := range map[string]string{
		"events": strings.Repeat(`{"event": "x"}`+"\n", controlEvents+1),
		"line":   `{"return": "` + strings.Repeat("x", controlLimit) + `"}`,
		"text":   "not JSON",
		"type":   `{"return": "seven"}`,
	} {
		var got int
		if err := monitorOf(t, answer).run("query", nil, &got); err == nil {
			t.Errorf("%s: run = nil, want an error", name)
		}
	}
}

// TestFixedSize: a machine of User-Mode Linux does not grow, and what it has is no growth.
func TestFixedSize(t *testing.T) {
	m := &Machine{config: Config{Memory: 300, CPUs: 1}}
	if err := m.Grow(t.Context(), 300, 4); err != nil {
		t.Errorf("Grow to the size that it has = %v, want success", err)
	}
	if err := m.Grow(t.Context(), 301, 1); !errors.Is(err, ErrFixedSize) {
		t.Errorf("Grow = %v, want %v", err, ErrFixedSize)
	}
}
