package namespaces

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// onThread runs f on an OS thread that no other goroutine uses afterwards, so f may leave it in any namespace and with
// any credentials. f must not start goroutines that rely on them.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the Go runtime ends a thread whose goroutine ends while locked to it.
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			done <- f()
			return
		}
		// The main thread cannot be ended, and /proc/self shows its namespaces as those of the whole process. While this
		// goroutine is locked to it, the next one gets another thread.
		done <- onThread(f)
		runtime.UnlockOSThread()
	}()
	return <-done
}

// enter moves the calling thread, which must be one of onThread's, into the pinned namespaces.
func enter(kinds []kind) error {
	for _, k := range kinds {
		if err := enterOne(k); err != nil {
			return fmt.Errorf("enter %s namespace %s: %w", k.name, k.path, err)
		}
	}
	return nil
}

func enterOne(k kind) error {
	fd, err := unix.Open(k.path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// The kernel checks that the file is a namespace of this type: an unmounted pin file is EINVAL.
	return unix.Setns(fd, k.flag)
}
