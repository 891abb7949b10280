package runc

import (
	"context"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/subprocess"
)

// commandStderr passes on the stderr of a command. Text from before the start of the command comes from the
// runtime, and is held: it says why there is no command.
type commandStderr struct {
	ctx    context.Context
	client io.Writer
	// pipe is the end of the pipe that is read.
	pipe    *os.File
	command *launchedCommand
	held    *subprocess.Head
	passing bool
}

func (c *commandStderr) Write(p []byte) (int, error) {
	if c.passing {
		return c.client.Write(p)
	}
	held := c.held.Len()
	c.held.Write(p)
	held = c.held.Len() - held // of p
	started := false
	_ = process.Poll(c.ctx, func() bool {
		started = driver.FileExists(c.command.pidFile) || c.held.Len() == outputLimit // no runtime says as much
		return started || !c.command.launcher.Alive() || hasInput(c.pipe)
	})
	if !started {
		return len(p), nil
	}
	err := c.pass()
	if err == nil && held < len(p) {
		_, err = c.client.Write(p[held:])
	}
	return len(p), err
}

// pass passes on the held text, and from now on everything.
func (c *commandStderr) pass() error {
	if c.passing {
		return nil
	}
	c.passing = true
	_, err := c.client.Write(c.held.Bytes())
	return err
}

// hasInput reports whether a read of the pipe would return at once.
func hasInput(pipe *os.File) (has bool) {
	raw, err := pipe.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			has = n > 0
		})
	}
	return has || err != nil
}
