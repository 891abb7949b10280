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

// delLockSuffix is the suffix of a pod's DEL lock, next to its record.
const delLockSuffix = ".hold"

// delLockPoll is the interval at which a lock that another process holds is tried again.
const delLockPoll = 20 * time.Millisecond

// lockDel locks a pod's DEL. A crash of the daemon must not interrupt DEL: a plugin may delete its device first, and a
// rerun that finds none may leave rules behind. So the plugins of a DEL and their children outlive the daemon and
// inherit the lock (flock), and the next daemon waits for it. Plugins of an ADD do not inherit it, because they may
// leave a server behind that lives as long as the pod.
func (c *CNI) lockDel(ctx context.Context, podID string) (*os.File, error) {
	f, err := os.OpenFile(c.delLockPath(podID), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock DEL of pod network: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock DEL of pod network: %w", err)
		}
		select {
		case <-time.After(delLockPoll):
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("a CNI plugin of an earlier podd is still running for pod %s (find it with fuser %s): %w",
				podID, f.Name(), context.Cause(ctx))
		}
	}
}

func (c *CNI) delLockPath(podID string) string {
	return filepath.Join(c.stateDir, podID+delLockSuffix)
}
