package stdio

import (
	"encoding/binary"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/events"
	eventservice "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/podd-project/podd/oci/driver/socket"
)

// eventful starts a server of events in a bundle and returns the bundle's directory.
func eventful(t *testing.T) (bundle string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ev") // short enough for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	bundle = filepath.Join(dir, "pod")
	if err := os.Mkdir(bundle, 0o700); err != nil {
		t.Fatal(err)
	}
	for id, owner := range map[string]string{"pod": "pod", "app": "pod", "other": "other"} {
		if err := os.MkdirAll(filepath.Join(dir, id), 0o700); err != nil {
			t.Fatal(err)
		}
		record, _ := json.Marshal(map[string]string{"owner": owner})
		if err := os.WriteFile(filepath.Join(dir, id, RecordFile), record, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e, err := openEvents(bundle)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.serve()
	}()
	t.Cleanup(func() {
		_ = e.close()
		<-done
	})
	return bundle
}

// publisher is what a shim posts with: the real library's client.
func publisher(t *testing.T, bundle string) eventservice.TTRPCEventsService {
	t.Helper()
	conn, err := net.Dial("unix", filepath.Join(bundle, Events))
	if err != nil {
		t.Fatal(err)
	}
	c := ttrpc.NewClient(conn)
	t.Cleanup(func() { _ = c.Close() })
	return eventservice.NewTTRPCEventsClient(c)
}

func envelope(t *testing.T, url string, m proto.Message) *eventservice.ForwardRequest {
	t.Helper()
	value, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &eventservice.ForwardRequest{Envelope: &types.Envelope{
		Timestamp: timestamppb.Now(), Namespace: "k8s.io", Topic: "/tasks/oom", Event: &anypb.Any{TypeUrl: url, Value: value},
	}}
}

func TestEvents(t *testing.T) {
	bundle := eventful(t)
	shim := publisher(t, bundle)
	marked := func(id string) bool {
		_, err := os.Lstat(filepath.Join(filepath.Dir(bundle), id, OOMMark))
		return err == nil
	}
	for _, request := range []*eventservice.ForwardRequest{
		{},
		envelope(t, "containerd.events.TaskExit", &events.TaskExit{ContainerID: "app", ID: "app", ExitStatus: 1}),
		envelope(t, "containerd.events.TaskOOM", &events.TaskOOM{ContainerID: "other"}),
		envelope(t, "containerd.events.TaskOOM", &events.TaskOOM{ContainerID: "absent"}),
		envelope(t, "containerd.events.TaskOOM", &events.TaskOOM{ContainerID: "../pod"}),
		envelope(t, "containerd.events.TaskOOM", &events.TaskOOM{ContainerID: ".."}),
		envelope(t, "containerd.events.TaskOOM", &events.TaskOOM{}),
		envelope(t, "containerd.events.TaskOOM", &events.TaskOOM{ContainerID: strings.Repeat("x", 4096)}),
	} {
		if _, err := shim.Forward(t.Context(), request); err != nil {
			t.Fatalf("%v: %v", request.GetEnvelope().GetEvent().GetTypeUrl(), err)
		}
	}
	for _, id := range []string{"pod", "app", "other"} {
		if marked(id) {
			t.Errorf("%s has the out-of-memory mark, want none", id)
		}
	}
	for url, id := range map[string]string{
		"containerd.events.TaskOOM": "app", "type.googleapis.com/containerd.events.TaskOOM": "pod",
	} {
		if _, err := shim.Forward(t.Context(), envelope(t, url, &events.TaskOOM{ContainerID: id})); err != nil {
			t.Fatal(err)
		}
		if !marked(id) {
			t.Errorf("%s has no out-of-memory mark, want one", id)
		}
	}
}

// TestEventsNonsense: a connection that sends anything but a request is closed, and others stay open.
func TestEventsNonsense(t *testing.T) {
	bundle := eventful(t)
	for name, frame := range map[string][]byte{
		"too long":   header(frameLimit+1, frameRequest),
		"response":   header(0, frameResponse),
		"data frame": header(0, 3),
	} {
		conn, err := net.Dial("unix", filepath.Join(bundle, Events))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = conn.Write(frame)
		if n, err := conn.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Errorf("%s: read = %d bytes, %v, want a closed connection", name, n, err)
		}
		conn.Close()
	}
	if _, err := publisher(t, bundle).Forward(t.Context(), &eventservice.ForwardRequest{}); err != nil {
		t.Error(err)
	}
}

func header(length uint32, kind byte) []byte {
	h := make([]byte, frameHeader)
	binary.BigEndian.PutUint32(h, length)
	h[8] = kind
	return h
}

func FuzzField(f *testing.F) {
	f.Add([]byte{0x1a, 2, 0x0a, 0}, 3)
	f.Fuzz(func(t *testing.T, message []byte, number int) {
		if len(bytesField(message, 3)) > len(message) {
			t.Errorf("bytesField returned more than the %d bytes of the message", len(message))
		}
		(&eventServer{bundle: "/nonexistent/pod"}).handleRequest(message)
	})
}

// TestServerWithEvents: a server that takes events runs on after the end of the output, and one that is started again
// does not wait for output that has ended.
func TestServerWithEvents(t *testing.T) {
	bundle := filepath.Dir(eventful(t)) // only for a short path
	bundle = filepath.Join(bundle, "own")
	if err := os.Mkdir(bundle, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(bundle, Config{Terminal: true, Events: true}); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		k, err := open(bundle)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.run()
		}()
		if round == 0 {
			w, err := os.OpenFile(filepath.Join(bundle, Stdout), os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			w.Close()
		}
		for end := time.Now().Add(20 * time.Second); !OutputDone(bundle); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("OutputDone = false after 20s, want true")
			}
		}
		if _, err := publisher(t, bundle).Forward(t.Context(), &eventservice.ForwardRequest{}); err != nil {
			t.Error(err)
		}
		if err := k.events.close(); err != nil { // in the place of the kill
			t.Fatal(err)
		}
		<-done
	}
}

// TestEventsAddress: in a directory with a path that no socket can have, a shim that runs there reaches the socket.
func TestEventsAddress(t *testing.T) {
	bundle := filepath.Join(t.TempDir(), strings.Repeat("d", socket.MaxPath))
	if err := os.Mkdir(bundle, 0o700); err != nil {
		t.Fatal(err)
	}
	e, err := openEvents(bundle)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	t.Chdir(bundle)
	conn, err := net.Dial("unix", EventsAddress(bundle))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if got := EventsAddress("/run/podd/c"); got != "/run/podd/c/"+Events {
		t.Errorf("address in a short directory = %s, want its path", got)
	}
}
