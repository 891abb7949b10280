package daemon

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// closeDescriptorsOnExec sets close-on-exec on all inherited file descriptors, so that no program that podd starts
// (CNI plugin, conmon, runtime) passes one on to a container. CVE-2024-21626 was such a leak. Go sets the flag on
// files that it opens.
func closeDescriptorsOnExec() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("set close-on-exec on inherited file descriptors: %w", err)
	}
	return nil
}
