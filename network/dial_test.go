package network_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/network/networktest"
)

// attached returns a network with one pod, and the path of the pod's network namespace.
func attached(t testing.TB) (*network.CNI, string) {
	t.Helper()
	b := networktest.NewBridge(t, "1.0.0")
	c := start(t, b.StateDir, b.Config())
	r := request(t, "pod1")
	setup(t, c, r)
	t.Cleanup(func() { teardown(t, c, "pod1") })
	return c, r.Netns
}

// TestDialOfDeafServer: 1,000 connections to a server whose queue is full wait without a thread each, and end with
// their context. A connection to another server of the pod is established meanwhile.
func TestDialOfDeafServer(t *testing.T) {
	c, netns := attached(t)
	deaf := listenDeaf(t, netns)
	healthy := serve(t, netns, "tcp", "127.0.0.1:0")
	before := threads(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	var all sync.WaitGroup
	errs := make(chan error, 1000)
	for range cap(errs) {
		all.Go(func() {
			conn, err := c.Dial(ctx, "pod1", deaf)
			if err == nil {
				conn.Close()
			}
			errs <- err
		})
	}
	time.Sleep(time.Second) // until all connections are being established
	conn, err := c.Dial(ctx, "pod1", healthy)
	hear(t, conn, err, "hello from 127.0.0.1:0")
	if now := threads(t); now > before+60 {
		t.Errorf("threads = %d, want at most 60 more than the %d before", now, before)
	}
	stop := errors.New("stop")
	cancel(stop)
	all.Wait()
	close(errs)
	waited := 0
	for err := range errs {
		if errors.Is(err, stop) {
			waited++
		} else if err != nil {
			t.Errorf("Dial = %v, want the cause of the context", err)
		}
	}
	if waited < 900 {
		t.Errorf("%d of 1,000 connections waited, want nearly all: is the queue full?", waited)
	}
}

// listenDeaf listens on a port with a queue of one connection that is never accepted.
func listenDeaf(t *testing.T, netns string) (port uint16) {
	t.Helper()
	fd := -1
	err := networktest.InNetns(netns, func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		return errors.Join(err, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(name.(*unix.SockaddrInet4).Port)
}

// threads returns the number of threads of this process.
func threads(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(string(regexp.MustCompile(`Threads:\s+(\d+)`).FindSubmatch(text)[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// BenchmarkDial connects to a server in a pod.
func BenchmarkDial(b *testing.B) {
	c, netns := attached(b)
	port := serve(b, netns, "tcp", "127.0.0.1:0")
	for b.Loop() {
		conn, err := c.Dial(b.Context(), "pod1", port)
		if err != nil {
			b.Fatal(err)
		}
		conn.Close()
	}
}
