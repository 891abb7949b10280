package namespaces

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/thread"
)

// OpenNetDev opens /proc/net/dev of a pinned network namespace, the counters of its interfaces (proc_pid_net(5)). The
// file can be read from its start repeatedly without entering the namespace again, and reading it takes none of the
// kernel's network locks.
//
// The open file keeps the namespace alive: close it when the pod stops.
func OpenNetDev(netns string) (*os.File, error) {
	const name = "/proc/thread-self/net/dev"
	var f *os.File
	err := thread.Run(func() error {
		if err := enterOne(kind{path: netns, flag: unix.CLONE_NEWNET}); err != nil {
			return err
		}
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		f = os.NewFile(uintptr(fd), name)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("interfaces of network namespace %s: %w", netns, err)
	}
	return f, nil
}
