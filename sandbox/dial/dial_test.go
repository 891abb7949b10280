package dial

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/sandbox/budget"
)

// TestManyDials: 1,000 connections to a pod that does not answer wait in turns of 32, all of them end after the
// timeout, and a connection to another pod is established at once.
func TestManyDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := budget.New(1, 1, 1).Dials
		var now, most atomic.Int64
		stuck := func(ctx context.Context) (net.Conn, error) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		began := time.Now()
		var all sync.WaitGroup
		var exhausted atomic.Int64
		for range 1000 {
			all.Go(func() {
				_, err := InTurn(t.Context(), turns, "deaf", stuck)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("InTurn = %v, want a deadline", err)
				}
				if errdefs.IsResourceExhausted(err) {
					exhausted.Add(1)
				}
			})
		}
		synctest.Wait()
		healthy := func(context.Context) (net.Conn, error) { return &net.TCPConn{}, nil }
		conn, err := InTurn(t.Context(), turns, "other", healthy)
		if err != nil || conn == nil || time.Since(began) != 0 {
			t.Errorf("another pod: %v after %v, want a connection at once", err, time.Since(began))
		}
		all.Wait()
		if took := time.Since(began); took != Timeout {
			t.Errorf("all ended after %v, want %v", took, Timeout)
		}
		// At the deadline a turn may go to a connection whose own time is over.
		if most.Load() != 32 || exhausted.Load() < 500 {
			t.Errorf("%d at once, %d without a turn, want 32, at least 500", most.Load(), exhausted.Load())
		}
	})
}

// TestDialAny: a server that listens at one of two addresses is found, also when the other does not answer at all.
func TestDialAny(t *testing.T) {
	full := fullListener(t)
	port := uint16(full.Port)
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP("127.0.0.1"), Port: full.Port})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, ips := range map[string][]string{
		"the first":                     {"127.0.0.1", "127.0.0.3"},
		"the second, the first refuses": {"127.0.0.3", "127.0.0.1"},
		"the second, the first hangs":   {"127.0.0.2", "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			conn, err := Any(ctx, ips, port)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if got := conn.RemoteAddr().(*net.TCPAddr).IP.String(); got != "127.0.0.1" {
				t.Errorf("connected to %s, want 127.0.0.1", got)
			}
		})
	}
	_, err = Any(t.Context(), []string{"127.0.0.3", "127.0.0.4"}, port)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.3") || !strings.Contains(err.Error(), "127.0.0.4") {
		t.Errorf("Any without a listener = %v, want an error with both addresses", err)
	}
}

// fullListener returns the address of a socket whose queue is full: the kernel answers no new connection.
func fullListener(t *testing.T) *net.TCPAddr {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 2}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2), Port: bound.(*unix.SockaddrInet4).Port}
	for {
		conn, err := net.DialTimeout("tcp", at.String(), 200*time.Millisecond)
		if err != nil {
			return at
		}
		t.Cleanup(func() { conn.Close() })
	}
}
