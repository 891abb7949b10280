package shim

import (
	"errors"
	"io"
	"os"

	"github.com/containerd/log"
)

// logLimit is the size of the shim's log, in bytes. The file is in the run directory, which is in memory and shared by
// all pods, and a guest causes messages: ttrpc logs each answer to a call that it does not know.
const logLimit = 256 << 10

// BoundLog makes f the output of the log and keeps it below logLimit if it is a regular file: a full one is truncated.
func BoundLog(f *os.File) { log.L.Logger.SetOutput(newBoundedLog(f)) }

// boundedLog is the log in a file. The logger writes one message at a time.
type boundedLog struct {
	file    *os.File
	written int
}

func newBoundedLog(f *os.File) io.Writer {
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return f // the reader of a pipe takes care of its size
	}
	return &boundedLog{file: f}
}

func (l *boundedLog) Write(b []byte) (int, error) {
	if l.written+len(b) > logLimit {
		_, err := l.file.Seek(0, io.SeekStart)
		if err := errors.Join(err, l.file.Truncate(0)); err != nil {
			return 0, err
		}
		l.written = 0
	}
	n, err := l.file.Write(b[:min(len(b), logLimit)])
	l.written += n
	if err != nil {
		return n, err
	}
	return len(b), nil // the rest is dropped
}
