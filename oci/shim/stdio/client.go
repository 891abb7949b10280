package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/driver/socket"
)

// answerLimit bounds the part of an answer that is read, in bytes.
const answerLimit = 4 << 10

// Start starts the program for a bundle that Prepare has prepared, and returns its pid when it is ready. The process
// has its own session and outlives the caller; a goroutine reaps it if it exits before.
func Start(ctx context.Context, program, bundle string) (pid int, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("start stdio process: %w", err)
	}
	defer r.Close()
	cmd := exec.Command(program, bundle)
	cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", []string{}, []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return 0, fmt.Errorf("start stdio process: %w", err)
	}
	go func() { _ = cmd.Wait() }()
	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	word, err := io.ReadAll(io.LimitReader(r, answerLimit))
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil && string(word) != readyAnswer:
		err = fmt.Errorf("it reports %q", word)
	}
	if err != nil {
		_ = cmd.Process.Kill() // by handle: os knows whether it was reaped
		return 0, fmt.Errorf("start stdio process: %w", err)
	}
	return cmd.Process.Pid, nil
}

// Reopen makes the bundle's process continue in a new log file if the log was moved away, and returns when it does.
// errdefs.ErrFailedPrecondition if there is no process.
func Reopen(ctx context.Context, bundle string) error {
	conn, err := socket.Dial("unixpacket", bundle, Control)
	if err != nil {
		return fmt.Errorf("reopen log: %w", errors.Join(err, errdefs.ErrFailedPrecondition))
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write([]byte(requestReopen)); err != nil {
		return fmt.Errorf("reopen log: %w", err)
	}
	buf := make([]byte, answerLimit)
	n, err := conn.Read(buf)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("reopen log: %w", context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("reopen log: %w", err)
	case string(buf[:n]) != readyAnswer:
		return fmt.Errorf("reopen log: %s", buf[:n])
	}
	return nil
}

// OutputDone reports whether the bundle's process has seen the end of the output.
func OutputDone(bundle string) bool {
	_, err := os.Lstat(filepath.Join(bundle, doneFile))
	return err == nil
}
