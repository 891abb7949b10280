// Package thread runs functions on operating system threads of their own, which may be moved to other namespaces.
package thread

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Run runs f on an OS thread that no other goroutine uses afterwards, so f may leave it in any namespace and with any
// credentials. f must not start goroutines that rely on them.
func Run(f func() error) error {
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
		done <- Run(f)
		runtime.UnlockOSThread()
	}()
	return <-done
}

// InNamespace runs f on a thread that has joined the namespace at a path, such as /proc/<pid>/ns/net. Its type is flag
// (unix.CLONE_NEW...). f must not start goroutines that rely on that.
func InNamespace(path string, flag int, f func() error) error {
	ns, err := os.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	return Run(func() error {
		if err := unix.Setns(int(ns.Fd()), flag); err != nil {
			return fmt.Errorf("enter the namespace %s: %w", path, err)
		}
		return f()
	})
}
