package jail

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forbidHandles has open_by_handle_at(2) fail, for this thread and the programs that it starts: it opens any file of a
// file system of which one file is known. The calls of another architecture fail as well, which would be a way around.
func forbidHandles() error {
	const (
		number       = 0 // offsets in struct seccomp_data
		architecture = 4
		x32          = 0x40000000 // begins the numbers of x86's other calls
		fail         = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	)
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: architecture},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: auditArch, Jf: 4},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: x32, Jt: 2},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_OPEN_BY_HANDLE_AT, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		{Code: unix.BPF_RET | unix.BPF_K, K: fail},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// Not by unix.Prctl: only the arguments of Syscall itself may be addresses of Go's memory, which else may move.
	_, _, errno := unix.Syscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER,
		uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("forbid open_by_handle_at: %w", errno)
	}
	return nil
}
