// Package fsynctest shows tests which calls of fsync(2) are made, and when. It knows nothing of what is synced.
//
// Only tests may import it.
package fsynctest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Watch runs do on a thread of its own, whose calls of fsync(2) the kernel announces and holds
// (SECCOMP_RET_USER_NOTIF, which needs no privileges). on gets the path of the file or directory, and returns the
// result of the call: an error, or 0 for the kernel's.
func Watch(t testing.TB, do func() error, on func(file string) syscall.Errno) error {
	t.Helper()
	listening, ended := make(chan int, 1), make(chan error, 1)
	go func() {
		defer close(listening)
		runtime.LockOSThread() // and not unlocked: the filter ends with the thread, which ends with the goroutine
		listener, err := announceFsyncs()
		if err != nil {
			ended <- err
			return
		}
		listening <- listener
		err = do()
		_ = unix.Fsync(-1) // ends answerFsyncs
		ended <- err
	}()
	listener, ok := <-listening
	if !ok {
		t.Skipf("no notifications of seccomp, which Linux has since 5.19 unless a container manager takes them: %v", <-ended)
	}
	defer unix.Close(listener)
	if err := answerFsyncs(listener, on); err != nil {
		t.Fatal(err)
	}
	return <-ended
}

// announceFsyncs makes the kernel announce the calls of fsync(2) of this thread, and hold them until they are answered.
// It returns the file descriptor for that.
func announceFsyncs() (listener int, err error) {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FSYNC, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, fmt.Errorf("set no_new_privs: %w", err)
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// Once announced, only a fatal signal interrupts the call: a restarted one would be announced again.
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return -1, fmt.Errorf("install seccomp filter: %w", errno)
	}
	return int(fd), nil
}

// answerFsyncs answers calls up to one of no file, fsync(-1).
func answerFsyncs(listener int, on func(file string) syscall.Errno) error {
	for {
		id, fd, err := receiveFsync(listener)
		if err != nil {
			return err
		}
		if fd < 0 {
			return answerFsync(listener, id, unix.EBADF)
		}
		file, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil {
			return err
		}
		if err := answerFsync(listener, id, on(file)); err != nil {
			return err
		}
	}
}

// receiveFsync waits for a call. It returns the id by which to answer it, and its file descriptor.
func receiveFsync(listener int) (id uint64, fd int32, err error) {
	for {
		var call struct { // seccomp_notif
			id         uint64
			pid, flags uint32
			nr         int32
			arch       uint32
			ip         uint64
			args       [6]uint64
		}
		err := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&call))
		if err == nil {
			return call.id, int32(call.args[0]), nil
		}
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOENT) { // then the call comes again
			return 0, 0, fmt.Errorf("receive a call of fsync: %w", err)
		}
	}
}

// answerFsync makes a call fail with errno, or, if that is 0, lets the kernel do it.
func answerFsync(listener int, id uint64, errno syscall.Errno) error {
	answer := struct { // seccomp_notif_resp
		id    uint64
		val   int64
		errno int32
		flags uint32
	}{id: id, errno: -int32(errno)}
	if errno == 0 {
		answer.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
	}
	if err := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&answer)); err != nil {
		return fmt.Errorf("answer a call of fsync: %w", err)
	}
	return nil
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}
