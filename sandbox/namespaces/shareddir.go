package namespaces

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockPoll is the time between two attempts to lock a directory that another program has locked.
const lockPoll = 10 * time.Millisecond

// shareDir makes dir (0755) and a shared mount of itself, as `ip netns add` does with /var/run/netns. Mounts in it then
// appear in every mount namespace that has a copy of it (HostToContainer), before and after. A directory that is a
// mount already only becomes shared.
//
// ip netns takes the same lock on the directory: two programs that bind it at the same time would double its mounts
// each time.
func shareDir(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create directory of network namespaces: %w", err)
	}
	err := makeShared(dir)
	if !errors.Is(err, unix.EINVAL) { // dir is not a mount point
		return err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := lockFile(ctx, lock); err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	if err := makeShared(dir); !errors.Is(err, unix.EINVAL) {
		return err // another program has made it one
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s on itself: %w", dir, err)
	}
	return makeShared(dir)
}

func makeShared(dir string) error {
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make %s a shared mount: %w", dir, err)
	}
	return nil
}

// lockFile waits for an exclusive flock(2) of f, which ends with f.
func lockFile(ctx context.Context, f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
