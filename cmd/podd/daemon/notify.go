package daemon

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"
)

// notifier sends notifications to the service manager (sd_notify(3)). The zero value sends none.
//
// The variables are removed from the environment when read: runc would pass NOTIFY_SOCKET on to containers, and conmon
// would send notifications to it. coreos/go-systemd is not used because it reads the environment at each call.
type notifier struct {
	socket string
	// interval is the period of the watchdog (WATCHDOG_USEC), 0 without one.
	interval time.Duration
}

// newNotifier reads the service manager's variables and removes them from the environment.
func newNotifier() notifier {
	n := notifier{socket: os.Getenv("NOTIFY_SOCKET")}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	pid := os.Getenv("WATCHDOG_PID")
	if err == nil && usec > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.interval = time.Duration(usec) * time.Microsecond
	}
	for _, name := range []string{
		"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES",
	} {
		os.Unsetenv(name)
	}
	return n
}

// send sends a message such as "READY=1". Errors are only logged.
func (n notifier) send(log logrus.FieldLogger, message string) {
	if n.socket == "" {
		return
	}
	if err := n.write(message); err != nil {
		log.WithError(err).Warn("failed to notify the service manager")
	}
}

func (n notifier) write(message string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(message))
	return err
}

// watchdog calls check at twice the rate that the service manager wants, and sends a keep-alive each time it succeeds.
// Without keep-alives the service manager aborts the daemon, which prints its goroutines, and starts another.
func (n notifier) watchdog(ctx context.Context, log logrus.FieldLogger, check func(context.Context) error) {
	if n.interval == 0 {
		return
	}
	period := n.interval / 2
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := checkWithin(ctx, period, check); err != nil && ctx.Err() == nil {
			log.WithError(err).Error("health check failed, skipping the watchdog notification")
			continue
		}
		n.send(log, "WATCHDOG=1")
	}
}

func checkWithin(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no response within %v", limit))
	defer cancel()
	if err := check(ctx); err != nil {
		return fmt.Errorf("call the health service over the own socket: %w", err)
	}
	return nil
}
