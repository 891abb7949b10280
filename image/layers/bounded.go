package layers

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"
)

// TooLarge begins the error of an image that exceeds the limits. It is part of longer texts: other processes and
// storage pass it on.
const TooLarge = "the unpacked image is too large"

// IsFull reports whether the disk, quota or inode table is full.
func IsFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// bounded fails when the writers that share a count have written more than most bytes together.
type bounded struct {
	to      io.Writer
	written *atomic.Int64
	most    int64
}

// Write is that of io.Writer.
func (b bounded) Write(p []byte) (int, error) {
	if b.written.Add(int64(len(p))) > b.most {
		return 0, fmt.Errorf("%s: more than %d bytes of headers and padding, with sparse files (a quarter of "+
			"max_image_bytes)", TooLarge, b.most)
	}
	return b.to.Write(p)
}
