package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
)

// notifySocket returns the socket of a service manager.
func notifySocket(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// receive returns the next message.
func receive(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	if err != nil {
		t.Fatalf("no message: %v", err)
	}
	return string(buf[:n])
}

func TestNotify(t *testing.T) {
	for name, address := range map[string]string{
		"path":     filepath.Join(t.TempDir(), "notify"),
		"abstract": "@podd-test-" + strconv.Itoa(os.Getpid()),
	} {
		t.Run(name, func(t *testing.T) {
			conn := notifySocket(t, address)
			t.Setenv("NOTIFY_SOCKET", address)
			n := newNotifier()
			log, hook := test.NewNullLogger()
			n.send(log, "READY=1\nSTATUS=x")
			if got := receive(t, conn); got != "READY=1\nSTATUS=x" || len(hook.Entries) > 0 {
				t.Errorf("message = %q with %d log entries, want READY=1 and STATUS=x with none", got, len(hook.Entries))
			}
		})
	}
}

func TestNotifierEnvironment(t *testing.T) {
	cases := map[string]struct {
		usec, pid string
		want      time.Duration
	}{
		"ours":          {"60000000", strconv.Itoa(os.Getpid()), time.Minute},
		"anyone's":      {"1500", "", 1500 * time.Microsecond},
		"another's":     {"60000000", "1", 0},
		"none":          {"", "", 0},
		"not a number":  {"1s", "", 0},
		"zero":          {"0", "", 0},
		"negative":      {"-5", "", 0},
		"no pid at all": {"60000000", "x", 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			vars := map[string]string{
				"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": c.usec, "WATCHDOG_PID": c.pid, "LISTEN_FDS": "1",
			}
			for k, v := range vars {
				t.Setenv(k, v)
			}
			if got := newNotifier(); got.interval != c.want || got.socket != "/n" {
				t.Errorf("newNotifier() = %+v, want interval %v", got, c.want)
			}
			for k := range vars {
				if v, ok := os.LookupEnv(k); ok {
					t.Errorf("%s=%s is still in the environment", k, v)
				}
			}
		})
	}
}

func TestNotifyFailureIsOnlyLogged(t *testing.T) {
	log, hook := test.NewNullLogger()
	notifier{socket: filepath.Join(t.TempDir(), "none")}.send(log, "READY=1")
	if len(hook.Entries) != 1 || hook.LastEntry().Level != logrus.WarnLevel {
		t.Errorf("%d log entries, want 1 warning", len(hook.Entries))
	}
	hook.Reset()
	notifier{}.send(log, "READY=1")
	if len(hook.Entries) != 0 {
		t.Errorf("%d log entries without a service manager, want none", len(hook.Entries))
	}
}

// TestWatchdog: notifications are sent at twice the rate, except while the check fails.
func TestWatchdog(t *testing.T) {
	conn := notifySocket(t, filepath.Join(t.TempDir(), "n"))
	synctest.Test(t, func(t *testing.T) {
		log, hook := test.NewNullLogger()
		n := notifier{socket: conn.LocalAddr().String(), interval: 10 * time.Second}
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		checks := 0
		check := func(ctx context.Context) error {
			checks++
			switch checks {
			case 2:
				return errors.New("sick")
			case 3: // hangs
				<-ctx.Done()
				return context.Cause(ctx)
			case 5:
				cancel()
			}
			return nil
		}
		n.watchdog(ctx, log, check)
		if checks != 5 {
			t.Errorf("%d checks, want 5", checks)
		}
		if took := time.Since(start); took < 20*time.Second || took > 30*time.Second {
			t.Errorf("5 checks took %v, want 20s to 30s", took)
		}
		if len(hook.Entries) != 2 {
			t.Errorf("logged %d failures, want 2", len(hook.Entries))
		}
	})
	for range 3 { // checks 1, 4 and 5
		if got := receive(t, conn); got != "WATCHDOG=1" {
			t.Errorf("message = %q, want WATCHDOG=1", got)
		}
	}
	if err := conn.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 10)); err == nil {
		t.Errorf("another message of %d bytes, want none", n)
	}
}

func TestWatchdogIsOffWithoutAnInterval(t *testing.T) {
	log, _ := test.NewNullLogger()
	notifier{}.watchdog(t.Context(), log, func(context.Context) error {
		t.Error("check was called without an interval")
		return nil
	}) // returns
}
