package stdio

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/podd-project/podd/oci/driver/socket"
)

// Events is the socket in a bundle to which the pod's shim posts events. They are received here because podd may be
// down, and gVisor's shim exits, with its pod, when it cannot post one.
const Events = "ev"

// EventsAddress is the path by which a shim connects to the socket Events of its bundle, which is its working
// directory. Shims know no way to connect by a path that is too long for the kernel.
func EventsAddress(bundle string) string {
	if path := filepath.Join(bundle, Events); len(path) <= socket.MaxPath {
		return path
	}
	return "/proc/self/cwd/" + Events
}

// OOMMark is the file that is created in the bundle of a container when the kernel has killed a process of it for lack
// of memory.
const OOMMark = "podd-oom"

// eventServer serves the only call that shims make, Forward of containerd's events service, by ttrpc. The library
// would triple the size of the program.
type eventServer struct {
	listener *net.UnixListener
	bundle   string
}

func openEvents(bundle string) (*eventServer, error) {
	if err := os.Remove(filepath.Join(bundle, Events)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("stdio: %w", err)
	}
	l, err := socket.Listen("unix", bundle, Events)
	if err != nil {
		return nil, fmt.Errorf("stdio: %w", err)
	}
	return &eventServer{listener: l, bundle: bundle}, nil
}

func (e *eventServer) serve() {
	for {
		conn, err := e.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go func() {
			defer conn.Close()
			_ = e.serveConn(conn) // the connection of a shim that violates the protocol is closed
		}()
	}
}

func (e *eventServer) close() error { return e.listener.Close() }

// The frames of ttrpc (its PROTOCOL.md): length, stream, type and flags, then the message.
const (
	frameHeader   = 10
	frameLimit    = 4 << 20
	frameRequest  = 1
	frameResponse = 2
)

// serveConn serves requests until the shim closes the connection.
func (e *eventServer) serveConn(conn io.ReadWriter) error {
	head := make([]byte, frameHeader)
	for {
		if _, err := io.ReadFull(conn, head); err != nil {
			return err
		}
		length := binary.BigEndian.Uint32(head)
		if length > frameLimit || head[8] != frameRequest {
			return fmt.Errorf("frame of type %d, %d bytes", head[8], length)
		}
		message := make([]byte, length)
		if _, err := io.ReadFull(conn, message); err != nil {
			return err
		}
		e.handleRequest(message)
		// An empty message of type Response means success.
		binary.BigEndian.PutUint32(head, 0)
		head[8], head[9] = frameResponse, 0
		if _, err := conn.Write(head); err != nil {
			return err
		}
	}
}

// handleRequest looks for the one event that is used: Request.payload (3) is a ForwardRequest, whose envelope (1) has
// an event (4), whose type is 1 and whose value (2) names the container (1).
func (e *eventServer) handleRequest(request []byte) {
	event := bytesField(bytesField(bytesField(request, 3), 1), 4)
	if !strings.HasSuffix(string(bytesField(event, 1)), "containerd.events.TaskOOM") {
		return
	}
	e.markOOM(string(bytesField(bytesField(event, 2), 1)))
}

// bytesField is the last occurrence of a bytes field, nil if there is none or the message is malformed.
func bytesField(message []byte, number protowire.Number) (value []byte) {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return nil
		}
		message = message[size:]
		if n == number && kind == protowire.BytesType {
			b, size := protowire.ConsumeBytes(message)
			if size < 0 {
				return nil
			}
			value, message = b, message[size:]
			continue
		}
		if size = protowire.ConsumeFieldValue(n, kind, message); size < 0 {
			return nil
		}
		message = message[size:]
	}
	return value
}

// nameLimit is the longest name of a file, in bytes.
const nameLimit = 255

// markOOM records the event in the bundle of a container of this pod, and of no other.
func (e *eventServer) markOOM(id string) {
	if id == "" || len(id) > nameLimit || id[0] == '.' || strings.ContainsAny(id, "/\x00") {
		return
	}
	dir := filepath.Join(filepath.Dir(e.bundle), id)
	data, err := os.ReadFile(filepath.Join(dir, RecordFile))
	var record struct{ Owner string }
	if err != nil || json.Unmarshal(data, &record) != nil || record.Owner != filepath.Base(e.bundle) {
		return
	}
	_ = os.WriteFile(filepath.Join(dir, OOMMark), nil, 0o600) // if it fails, the cgroup's counter has it, too
}

// RecordFile is package shim's record of a container. It is read for the owner of the container's shim.
const RecordFile = "podd.json"
