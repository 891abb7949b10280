// Package fuse mounts FUSE volumes whose server hangs, for tests of what podd does with dead volumes.
package fuse

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// Volume is a FUSE volume whose server answers requests for a directory with a file in it, but no reads. A process that
// reads the file sleeps uninterruptibly, even after SIGKILL.
type Volume struct {
	dir  string
	fd   int
	dead atomic.Bool // answer only the initial request
	done chan struct{}
}

// The calls of the FUSE protocol that are answered.
const (
	fuseLookup  = 1
	fuseGetattr = 3
	fuseOpen    = 14
	fuseStatfs  = 17
	fuseInit    = 26
	fuseAccess  = 34
)

// Mount mounts the volume at dir and unmounts it at the test's end. The test is skipped if the kernel has no FUSE.
func Mount(t testing.TB, dir string) *Volume {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no FUSE in this kernel, which the uninterruptible sleep needs: %v", err)
	}
	f := &Volume{dir: dir, fd: fd, done: make(chan struct{})}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount("podd-test", dir, "fuse", unix.MS_NODEV|unix.MS_NOSUID, options); err != nil {
		unix.Close(fd)
		t.Fatalf("mount FUSE: %v", err)
	}
	go f.serve()
	t.Cleanup(f.Disconnect)
	return f
}

// Disconnect closes the connection, so that pending requests fail, and unmounts the volume.
func (f *Volume) Disconnect() {
	if err := unix.Unmount(f.dir, unix.MNT_FORCE); err != nil { // busy, but the connection is closed
		_ = unix.Unmount(f.dir, unix.MNT_DETACH)
	}
	<-f.done
}

// Die makes the server answer nothing any more.
func (f *Volume) Die() { f.dead.Store(true) }

// serve answers requests until the connection is closed.
func (f *Volume) serve() {
	defer close(f.done)
	defer unix.Close(f.fd)
	buf := make([]byte, 1<<17)
	for {
		n, err := unix.Read(f.fd, buf)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil || n < 40 {
			return
		}
		// struct fuse_in_header: len, opcode, unique, nodeid, ...
		opcode, unique := binary.NativeEndian.Uint32(buf[4:]), binary.NativeEndian.Uint64(buf[8:])
		node := binary.NativeEndian.Uint64(buf[16:])
		if answer := f.answer(opcode, node); answer != nil {
			head := binary.NativeEndian.AppendUint32(nil, uint32(16+len(answer)))
			head = binary.NativeEndian.AppendUint32(head, 0)
			head = binary.NativeEndian.AppendUint64(head, unique)
			_, _ = unix.Write(f.fd, append(head, answer...))
		}
	}
}

// answer returns the body of the answer, or nil for no answer.
func (f *Volume) answer(opcode uint32, node uint64) []byte {
	le := binary.NativeEndian
	switch {
	case opcode == fuseInit: // struct fuse_init_out: version 7.31, 4 KiB writes
		b := le.AppendUint32(le.AppendUint32(nil, 7), 31)
		b = append(b, make([]byte, 56)...)
		le.PutUint32(b[20:], 4096)
		return b
	case f.dead.Load():
		return nil
	case opcode == fuseGetattr: // struct fuse_attr_out, not valid after the request
		return append(make([]byte, 16), attr(node)...)
	case opcode == fuseLookup: // struct fuse_entry_out
		b := le.AppendUint64(le.AppendUint64(nil, 2), 0)
		b = le.AppendUint64(le.AppendUint64(b, 60), 60)
		return append(append(b, make([]byte, 8)...), attr(2)...)
	case opcode == fuseAccess: // no body
		return []byte{}
	case opcode == fuseStatfs: // struct fuse_statfs_out
		return make([]byte, 80)
	case opcode == fuseOpen: // struct fuse_open_out
		return make([]byte, 16)
	}
	return nil
}

// attr returns struct fuse_attr of the root, node 1, or of the file, node 2.
func attr(node uint64) []byte {
	b := make([]byte, 88)
	binary.NativeEndian.PutUint64(b, node)
	binary.NativeEndian.PutUint64(b[8:], 4096) // size
	mode := uint32(unix.S_IFREG | 0o644)
	if node == 1 {
		mode = unix.S_IFDIR | 0o755
	}
	binary.NativeEndian.PutUint32(b[60:], mode)
	binary.NativeEndian.PutUint32(b[64:], 1) // links
	return b
}
