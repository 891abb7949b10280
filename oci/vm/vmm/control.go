package vmm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// control is a QMP connection to QEMU (docs/interop/qmp-spec there), to resize the machine. Answers are bounded: a
// guest may have compromised QEMU.
type control struct {
	mu   sync.Mutex
	conn net.Conn
	// lines is nil before the greeting is read.
	lines *bufio.Scanner
}

const (
	// controlTimeout is how long a command may take.
	controlTimeout = 10 * time.Second
	// controlLimit bounds a line of QEMU, in bytes, controlEvents the events before an answer.
	controlLimit  = 256 << 10
	controlEvents = 100
)

// answer is a line of QEMU: its greeting, the answer to a command, or an event.
type answer struct {
	Greeting json.RawMessage               `json:"QMP"`
	Return   json.RawMessage               `json:"return"`
	Error    *struct{ Class, Desc string } `json:"error"`
	Event    string                        `json:"event"`
	Data     json.RawMessage               `json:"data"`
}

// run runs a command within controlTimeout and decodes the answer into result, unless that is nil.
func (c *control) run(command string, arguments, result any) error {
	return c.runWithin(controlTimeout, command, arguments, result)
}

// runWithin is run with another limit, which bounds the greeting, too.
func (c *control) runWithin(limit time.Duration, command string, arguments, result any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if c.lines == nil {
		if err := c.greet(); err != nil {
			return fmt.Errorf("QEMU: %w", err)
		}
	}
	returned, err := c.exchange(command, arguments)
	if err == nil && result != nil {
		err = json.Unmarshal(returned, result)
	}
	if err != nil {
		return fmt.Errorf("QEMU: %s: %w", command, err)
	}
	return nil
}

// greet reads the greeting and takes QEMU out of its negotiation mode.
func (c *control) greet() error {
	c.lines = bufio.NewScanner(c.conn)
	c.lines.Buffer(nil, controlLimit)
	a, err := c.read()
	if err != nil {
		return err
	}
	if a.Greeting == nil {
		return errors.New("no greeting")
	}
	_, err = c.exchange("qmp_capabilities", nil)
	return err
}

// exchange writes a command and returns the answer.
func (c *control) exchange(command string, arguments any) (json.RawMessage, error) {
	request := struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, arguments}
	if err := json.NewEncoder(c.conn).Encode(request); err != nil {
		return nil, err
	}
	for range controlEvents {
		a, err := c.read()
		switch {
		case err != nil:
			return nil, err
		case a.Error != nil:
			return nil, fmt.Errorf("%.500s (%.80s)", a.Error.Desc, a.Error.Class)
		case a.Return != nil:
			return a.Return, nil
		}
	}
	return nil, fmt.Errorf("more than %d events instead of an answer", controlEvents)
}

func (c *control) read() (a answer, err error) {
	if !c.lines.Scan() {
		if err = c.lines.Err(); err == nil {
			err = errors.New("it has ended")
		}
		return a, err
	}
	return a, json.NewDecoder(bytes.NewReader(c.lines.Bytes())).Decode(&a)
}
