package thread

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestInNamespace: f is in the namespace, and no thread of the process stays in it, not even the main one.
func TestInNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	var ns *os.File
	err := Run(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWUTS); err == nil {
			ns, err = os.Open("/proc/thread-self/ns/uts")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	want, err := os.Readlink(fdPath(ns))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 50 { // some of them on the main thread
		all.Go(func() {
			err := InNamespace(fdPath(ns), unix.CLONE_NEWUTS, func() error {
				if got, err := os.Readlink("/proc/thread-self/ns/uts"); got != want || err != nil {
					t.Errorf("namespace = %s, %v, want %s", got, err, want)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) { // the threads are ending
		left := threadsIn(t, want)
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("threads %q are in the namespace after 10 s, want none", left)
		}
	}
	if err := InNamespace(fdPath(ns), unix.CLONE_NEWNET, nil); err == nil {
		t.Error("InNamespace of another type = nil, want an error")
	}
}

// threadsIn returns the threads of the process that are in a UTS namespace.
func threadsIn(t *testing.T, ns string) (threads []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/self/task/*/ns/uts")
	if err != nil || len(paths) == 0 {
		t.Fatalf("threads of the process = %q, %v, want some", paths, err)
	}
	for _, path := range paths {
		if got, _ := os.Readlink(path); got == ns {
			threads = append(threads, path)
		}
	}
	return threads
}

func fdPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
