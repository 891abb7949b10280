package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"
)

// notifier talks to the service manager (sd_notify(3)). Its zero value says nothing.
//
// The variables are taken out of the environment when read: runc would hand a NOTIFY_SOCKET on to containers,
// and conmon would speak to it in our name. That is why coreos/go-systemd, which reads the environment at
// each call, is not used here.
type notifier struct {
	socket string
	// interval is how often a healthy daemon must be heard, 0 for never.
	interval time.Duration
}

// newNotifier takes the service manager's variables out of the environment.
func newNotifier() notifier {
	n := notifier{socket: os.Getenv("NOTIFY_SOCKET")}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	pid := os.Getenv("WATCHDOG_PID")
	if err == nil && usec > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.interval = time.Duration(usec) * time.Microsecond
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name)
	}
	return n
}

// send tells the service manager, e.g. "READY=1". Nothing hangs on it: an error is only logged.
func (n notifier) send(log logrus.FieldLogger, message string) {
	if n.socket == "" {
		return
	}
	if err := n.write(message); err != nil {
		log.WithError(err).Warn("the service manager could not be notified")
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

// watchdog tells the service manager at twice the rate it wants that the daemon answers, for as long as check
// says so. When it does not the service manager aborts the daemon, which prints its goroutines, and starts
// another.
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
			log.WithError(err).Error("the daemon does not answer, the watchdog is not fed")
			continue
		}
		n.send(log, "WATCHDOG=1")
	}
}

func checkWithin(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	if err := check(ctx); err != nil {
		return fmt.Errorf("check the own socket: %w", err)
	}
	return nil
}
