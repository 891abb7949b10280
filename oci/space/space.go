// Package space bounds how much of a disk a checkpoint may fill: half of the free space, because more is written to it
// afterwards, and podd's records or the kubelet use the same disk.
package space

import (
	"fmt"
	"path/filepath"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Half returns half of what every user may use of the disk of dir, in bytes.
func Half(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize / 2, nil
}

// Promised is the space reserved for writes in progress, in bytes.
type Promised struct {
	mu    sync.Mutex
	bytes uint64
}

// Reserve is Check for this and all that was reserved before. The caller calls done, once, when it has written: then
// the disk knows. Until then part of it counts twice, which refuses too much, but never too little.
func (p *Promised) Reserve(dir string, bytes uint64) (done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := Check(dir, p.bytes+bytes); err != nil {
		return nil, fmt.Errorf("%w: %d bytes of that are of checkpoints in progress", err, p.bytes)
	}
	p.bytes += bytes
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.bytes -= bytes
	}, nil
}

// Check returns errdefs.ErrResourceExhausted unless half of the disk of dir holds this many bytes.
func Check(dir string, bytes uint64) error {
	half, err := Half(dir)
	if err != nil || bytes <= uint64(half) {
		return err
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil { // it may be a link below /proc
		dir = real
	}
	return fmt.Errorf("%w: a checkpoint of %d bytes needs twice as much free space, the disk of %s has %d",
		errdefs.ErrResourceExhausted, bytes, dir, 2*half)
}
