package driver

import (
	"bytes"
	"os"

	"github.com/podd-project/podd/oci/process"
)

// Files of a bundle: one has a byte for each out-of-memory kill that did not end the container, the other exists when
// the container was signaled.
const (
	excusedOOMs = "excused-ooms"
	signaled    = "signaled"
)

// maxExcused bounds the bytes that one call adds.
const maxExcused = 1000

// ExcuseOOMs notes n kills that are not the reason of the container's end. Errors are ignored: the reason may be wrong
// then.
func (b Bundle) ExcuseOOMs(n uint64) {
	f, err := os.OpenFile(b.File(excusedOOMs), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.Write(bytes.Repeat([]byte{'x'}, int(min(n, maxExcused))))
}

// ExcusedOOMs returns how many kills were noted.
func (b Bundle) ExcusedOOMs() uint64 {
	info, err := os.Stat(b.File(excusedOOMs))
	if err != nil {
		return 0
	}
	return uint64(info.Size())
}

// WatchOOMs returns a function that excuses the kills since now, if the container still runs: those of a command in it.
func (b Bundle) WatchOOMs(kills func() uint64, init process.Process) (excuse func()) {
	before := kills()
	return func() {
		if now := kills(); now > before && init.Alive() {
			b.ExcuseOOMs(now - before)
		}
	}
}

// NoteSignal notes the kills so far, which are then not the reason of the container's end, at the first signal to it.
func (b Bundle) NoteSignal(kills uint64) {
	f, err := os.OpenFile(b.File(signaled), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return
	}
	f.Close()
	if excused := b.ExcusedOOMs(); kills > excused {
		b.ExcuseOOMs(kills - excused)
	}
}
