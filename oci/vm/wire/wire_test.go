package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func TestReadLine(t *testing.T) {
	for name, c := range map[string]struct {
		input string
		want  error
	}{
		"header":        {`{"kind":"oom","id":"c"}` + "\nrest", nil},
		"too long":      {`{"id":"` + strings.Repeat("x", lineLimit) + `"}` + "\n", ErrLine},
		"not JSON":      {"kind\n", ErrLine},
		"unknown field": {`{"kind":"oom","pid":1}` + "\n", ErrLine},
		"no end":        {`{"kind":"oom"}`, io.EOF},
	} {
		r := strings.NewReader(c.input)
		var h Header
		if err := ReadLine(r, &h); !errors.Is(err, c.want) {
			t.Errorf("%s: ReadLine = %v, want %v", name, err, c.want)
		}
		if c.want == nil && (h != Header{Kind: Event, ID: "c"} || r.Len() != len("rest")) {
			t.Errorf("%s: header = %+v, %d bytes left, want what was written and 4", name, h, r.Len())
		}
	}
}

func TestReadHello(t *testing.T) {
	if err := ReadHello(strings.NewReader(Hello)); err != nil {
		t.Errorf("ReadHello = %v, want nil", err)
	}
	for _, other := range []string{"", "podd", "podd-vm 1\n", strings.Repeat("x", 1<<20)} {
		if err := ReadHello(strings.NewReader(other)); err == nil {
			t.Errorf("ReadHello of %.20q = nil, want an error", other)
		}
	}
}

// TestBodyIsBounded: the guest reads no more than bodyLimit of a body.
func TestBodyIsBounded(t *testing.T) {
	var b bytes.Buffer
	if err := WriteBody(&b, Pod{Hostname: strings.Repeat("x", 2*bodyLimit)}); err != nil {
		t.Fatal(err)
	}
	var p Pod
	if err := ReadBody(&b, &p); err == nil {
		t.Error("ReadBody of 2 MiB = nil, want an error")
	}
}

// TestHostBoundsStreams: the host holds at most hostBacklog streams of the guest that it has not taken.
func TestHostBoundsStreams(t *testing.T) {
	a, b := net.Pipe()
	host, err := Host(a, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	guest, err := Guest(b, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	defer guest.Close()
	for range 10 * hostBacklog {
		if _, err := guest.OpenStream(); err != nil {
			break
		}
	}
	time.Sleep(50 * time.Millisecond) // nothing announces that the host has read all
	if n := host.NumStreams(); n > hostBacklog {
		t.Errorf("the host holds %d streams, want at most %d", n, hostBacklog)
	}
}

// TestHostTakesNoPings: yamux starts a goroutine for each ping, so the first one ends the session.
func TestHostTakesNoPings(t *testing.T) {
	a, b := net.Pipe()
	host, err := Host(a, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	ping := []byte{0, muxPing, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1}
	for range 3 {
		_ = b.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = b.Write(ping)
	}
	select {
	case <-host.CloseChan():
	case <-time.After(10 * time.Second):
		t.Error("the session is open after pings, want it closed")
	}
}

// FuzzSession: whatever a guest sends, the host's session ends with the line.
func FuzzSession(f *testing.F) {
	f.Add([]byte{0, 1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, input []byte) {
		a, b := net.Pipe()
		host, err := Host(a, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, b) //nolint:errcheck // answers
		go func() {
			_, _ = b.Write(input)
			_ = b.Close()
		}()
		for {
			c, err := host.Accept()
			if err != nil {
				break
			}
			var h Header
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			_ = ReadLine(c, &h)
			_ = c.Close()
		}
		_ = host.Close()
	})
}
