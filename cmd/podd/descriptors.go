package main

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// keepDescriptors makes sure that no program that podd starts - CNI plugin, monitor, runtime, and so perhaps a
// container - inherits what whoever started podd left open. Go opens its own files that way already (CVE-2024-21626
// was one that was not).
func keepDescriptors() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("keep inherited descriptors from other programs: %w", err)
	}
	return nil
}
