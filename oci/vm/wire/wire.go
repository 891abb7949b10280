// Package wire is the protocol of the shim on the host and the agent in the guest: one byte stream, over which
// yamux carries many. The host trusts nothing that it reads from the guest: every size, count and time is bounded here
// or by the caller.
//
// Each stream begins with a Header, a line of JSON. The host opens all streams but those of kind Event.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/yamux"
)

// Hello is the first that the agent writes, when its end of the stream is ready. The host writes nothing before: a
// serial line that is not open yet would lose it.
const Hello = "podd-vm 2\n"

// Kind is the purpose of a stream.
type Kind string

// The kinds of streams.
const (
	// Task carries containerd's task API (ttrpc), served by the guest.
	Task Kind = "task"
	// Setup has a Setup as body; the guest answers with a Result.
	Setup Kind = "setup"
	// Output copies what is written to the named pipe Path of the guest to the host, Input the other way. The guest
	// answers with a Result when the pipe exists.
	Output Kind = "output"
	Input  Kind = "input"
	// Release gives up the named pipe Path, which a process that could not be started has not opened. The guest answers
	// with a Result.
	Release Kind = "release"
	// Online has the guest use the processors that it was given; the header's CPUs is how many it has then. It answers
	// with a Result.
	Online Kind = "online"
	// Halt has the guest write its file systems and power off. It does not answer.
	Halt Kind = "halt"
	// Event is opened by the guest; the header's ID is a container of which a process was killed for lack of memory.
	// The host answers with a Result when it has published the event.
	Event Kind = "oom"
)

// Header is the first line of a stream.
type Header struct {
	Kind Kind   `json:"kind"`
	Path string `json:"path,omitempty"`
	ID   string `json:"id,omitempty"`
	CPUs int    `json:"cpus,omitempty"`
}

// Result is the answer to a request, a line of JSON. Error is empty after success.
type Result struct {
	Error string `json:"error,omitempty"`
}

// Answer writes the Result of a request. If it cannot be written, the other side has gone or will see the end of the
// stream.
func Answer(w io.Writer, err error) {
	var r Result
	if err != nil {
		r.Error = err.Error()
	}
	_ = WriteLine(w, r)
}

// lineLimit bounds a Header and a Result, in bytes. ErrLine is returned for a longer line.
const lineLimit = 4 << 10

// ErrLine is the error for a line of the other side that is too long or not JSON.
var ErrLine = errors.New("malformed line")

// WriteLine writes v as a line of JSON.
func WriteLine(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// ReadLine reads a line of JSON into v. It reads nothing beyond the line.
func ReadLine(r io.Reader, v any) error {
	var line []byte
	one := make([]byte, 1)
	for {
		if _, err := io.ReadFull(r, one); err != nil {
			return err
		}
		if one[0] == '\n' {
			break
		}
		if line = append(line, one[0]); len(line) > lineLimit {
			return fmt.Errorf("%w: more than %d bytes", ErrLine, lineLimit)
		}
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrLine, err)
	}
	return nil
}

// bodyLimit bounds the body of a Setup stream, in bytes.
const bodyLimit = 1 << 20

// WriteBody writes v as the body of a stream; ReadBody reads it.
func WriteBody(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

// ReadBody reads one JSON value of at most bodyLimit bytes.
func ReadBody(r io.Reader, v any) error {
	if err := json.NewDecoder(io.LimitReader(r, bodyLimit)).Decode(v); err != nil {
		return fmt.Errorf("read the body: %w", err)
	}
	return nil
}

// ReadHello reads Hello. Any other byte is an error.
func ReadHello(r io.Reader) error {
	got := make([]byte, len(Hello))
	if n, err := io.ReadFull(r, got); err != nil {
		return fmt.Errorf("read %d bytes of the agent's greeting: %w", n, err)
	}
	if string(got) != Hello {
		return fmt.Errorf("the agent greets with %q, want %q: the image of the guest is of another version, build it again",
			got, Hello)
	}
	return nil
}

// writeTimeout is how long a write may wait for the other side to read the line. A paused machine reads nothing.
const writeTimeout = time.Minute

// config is that of both sides. There is no keep-alive: it would end the session of a machine that is stopped for
// a while, and the end of the machine ends the line.
func config(log io.Writer) *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive = false
	c.ConnectionWriteTimeout = writeTimeout
	c.StreamOpenTimeout = 0
	c.LogOutput = log
	return c
}

// hostBacklog bounds the streams that the guest has opened and the host has not yet taken, each with a window of
// 256 KiB. The guest opens one at a time.
const hostBacklog = 16

// closeTimeout is how long the host keeps a stream that it has closed and the guest has not, with the bytes that have
// arrived.
const closeTimeout = 5 * time.Second

// Host returns the host's side of the session.
func Host(line io.ReadWriteCloser, log io.Writer) (*yamux.Session, error) {
	c := config(log)
	c.AcceptBacklog = hostBacklog
	c.StreamCloseTimeout = closeTimeout
	return yamux.Client(&guard{ReadWriteCloser: line}, c)
}

// Guest returns the guest's side of the session.
func Guest(line io.ReadWriteCloser, log io.Writer) (*yamux.Session, error) {
	return yamux.Server(line, config(log))
}
