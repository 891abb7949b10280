package obstacle

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/thread"
)

// checkSockets finds the unix sockets that are connected with a process outside of the container.
func (s *search) checkSockets(init int) {
	if len(s.sockets) == 0 {
		return
	}
	_ = within(init, "net", unix.CLONE_NEWNET, func() error {
		return eachUnixSocket(func(inode, peer uint32) {
			pid, mine := s.sockets[inode]
			if _, inside := s.sockets[peer]; mine && !inside {
				s.add(socket, pid, "a unix socket that is connected with a process outside of the container: "+
					"CRIU saves only both ends")
			}
		})
	})
}

// HasIPC reports whether the IPC namespace of a process has shared memory, semaphores or message queues of System V.
func HasIPC(pid int) (has bool) {
	_ = within(pid, "ipc", unix.CLONE_NEWIPC, func() error {
		for _, kind := range []string{"shm", "sem", "msg"} {
			text, err := os.ReadFile("/proc/sysvipc/" + kind)
			if err != nil {
				return err
			}
			has = has || strings.Count(string(text), "\n") > 1 // the first line is a heading
		}
		return nil
	})
	return has
}

// within calls f on a thread that has joined a namespace of a process.
func within(pid int, kind string, flag int, f func() error) error {
	return thread.InNamespace(fmt.Sprintf("/proc/%d/ns/%s", pid, kind), flag, f)
}

// What unix sockets are asked by netlink (sock_diag(7), linux/unix_diag.h).
const (
	requestSize  = unix.SizeofNlMsghdr + 24
	answerSize   = 16 // of unix_diag_msg, before the attributes
	inodeAt      = 4  // in it
	showPeer     = 4
	attrPeer     = 2
	allStates    = 1<<32 - 1
	diagnoseTime = 5 // seconds
)

// eachUnixSocket calls f with each unix socket of the thread's network namespace that is connected, and the one at the
// other end.
func eachUnixSocket(f func(inode, peer uint32)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	limit := unix.Timeval{Sec: diagnoseTime}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return err
	}
	order := binary.NativeEndian
	request := make([]byte, requestSize)
	order.PutUint32(request, requestSize)
	order.PutUint16(request[4:], unix.SOCK_DIAG_BY_FAMILY)
	order.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	body := request[unix.SizeofNlMsghdr:]
	body[0] = unix.AF_UNIX
	order.PutUint32(body[4:], allStates)
	order.PutUint32(body[12:], showPeer)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(fd, buf)
		if err != nil {
			return err
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return err
		}
		for _, m := range messages {
			if m.Header.Type != unix.SOCK_DIAG_BY_FAMILY {
				return nil // the end, or an error
			}
			if peer := peerOf(m.Data); peer != 0 {
				f(order.Uint32(m.Data[inodeAt:]), peer)
			}
		}
	}
}

// peerOf returns the inode at the other end of a socket that an answer describes, 0 for none.
func peerOf(answer []byte) uint32 {
	for rest := answer[min(answerSize, len(answer)):]; len(rest) >= unix.SizeofNlAttr; {
		size := int(binary.NativeEndian.Uint16(rest))
		if size < unix.SizeofNlAttr || size > len(rest) {
			return 0
		}
		if binary.NativeEndian.Uint16(rest[2:]) == attrPeer && size >= unix.SizeofNlAttr+4 {
			return binary.NativeEndian.Uint32(rest[unix.SizeofNlAttr:])
		}
		rest = rest[min((size+3)&^3, len(rest)):]
	}
	return 0
}
