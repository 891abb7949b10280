package main

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// outByte writes a byte to a port of the machine.
func outByte(port uint16, value byte)

// writePort writes a byte to a port. A kernel need not have /dev/port.
func writePort(port uint16, value byte) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, _, errno := unix.Syscall(unix.SYS_IOPERM, uintptr(port), 1, 1); errno != 0 {
		return fmt.Errorf("permission for port %#x: %w", port, errno)
	}
	outByte(port, value)
	return nil
}
