package streaming

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// userOf returns who opened the other end of the connection: the uid of a process on this node's network, else the
// address.
func userOf(c net.Conn) string {
	peer, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	self, ok := c.LocalAddr().(*net.TCPAddr)
	if !ok {
		return peer.IP.String()
	}
	uid, err := socketOwner(peer, self)
	if err != nil {
		return peer.IP.String() // another machine, or another network namespace
	}
	return userName(uid)
}

// userName returns a name for the user of uid. From 65536 up, 65536 uids are one user: these are ranges of subordinate
// ids (subuid(5)) and of user namespaces of pods, of which one user or pod has all.
func userName(uid uint32) string {
	const uidsOfRange = 1 << 16
	if uid < uidsOfRange {
		return fmt.Sprintf("uid %d", uid)
	}
	return fmt.Sprintf("uids from %d", uid/uidsOfRange*uidsOfRange)
}

// Offsets and sizes of struct inet_diag_req_v2 and struct inet_diag_msg in linux/inet_diag.h.
const (
	diagRequestSize = 56
	diagIDOffset    = 8
	diagUIDOffset   = 64
)

// socketOwner asks the kernel for the uid of the TCP socket with these addresses (sock_diag(7)). It is a lookup of one
// socket: /proc/net/tcp lists all of them.
func socketOwner(local, remote *net.TCPAddr) (uint32, error) {
	data := make([]byte, diagRequestSize)
	data[0], data[1] = unix.AF_INET6, unix.IPPROTO_TCP
	src, dst := local.IP.To16(), remote.IP.To16()
	if v4 := local.IP.To4(); v4 != nil && remote.IP.To4() != nil {
		data[0], src, dst = unix.AF_INET, v4, remote.IP.To4()
	}
	binary.NativeEndian.PutUint32(data[4:], ^uint32(0)) // in any state
	id := data[diagIDOffset:]
	binary.BigEndian.PutUint16(id[0:], uint16(local.Port))
	binary.BigEndian.PutUint16(id[2:], uint16(remote.Port))
	copy(id[4:20], src)
	copy(id[20:36], dst)
	binary.NativeEndian.PutUint64(id[40:], ^uint64(0)) // INET_DIAG_NOCOOKIE

	r := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, 0)
	r.AddRawData(data)
	answers, err := r.Execute(unix.NETLINK_INET_DIAG, 0)
	if err != nil {
		return 0, fmt.Errorf("look up the socket of %s: %w", local, err)
	}
	if len(answers) != 1 || len(answers[0]) < diagUIDOffset+4 {
		return 0, errors.New("the kernel's answer about a socket is malformed")
	}
	return binary.NativeEndian.Uint32(answers[0][diagUIDOffset:]), nil
}
