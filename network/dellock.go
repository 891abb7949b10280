package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// delLockSuffix ends the name of a pod's hold, beside its record.
const delLockSuffix = ".hold"

// delLockPoll is how often a hold is asked for that somebody else has.
const delLockPoll = 20 * time.Millisecond

// hold is for DEL, which must not be cut short by a crash of the daemon: the bridge plugin deletes its device first, and
// when it is run again without one it deletes no masquerade rules. So the plugins of a DEL outlive the daemon, and the
// next daemon waits for them: the hold is a lock (flock) that they inherit, with whatever they start. Those of an ADD
// do not get it, for they may leave a server behind that lives as long as the pod.
func (c *CNI) lockDel(ctx context.Context, podID string) (*os.File, error) {
	f, err := os.OpenFile(c.delLockPath(podID), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("hold pod network: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("hold pod network: %w", err)
		}
		select {
		case <-time.After(delLockPoll):
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("a CNI plugin that an earlier podd started works on pod %s still (fuser %s tells which): %w", podID, f.Name(), context.Cause(ctx))
		}
	}
}

func (c *CNI) delLockPath(podID string) string {
	return filepath.Join(c.cfg.StateDir, podID+delLockSuffix)
}
