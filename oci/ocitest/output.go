package ocitest

import (
	"bytes"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podd-project/podd/oci/logfile"
)

// outputTime is how long WaitFor waits.
const outputTime = 20 * time.Second

// Output is a client's end of a stream: it can be read while it is written. Its zero value is empty.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write keeps everything.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

// String is what was written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// WaitFor waits until what was written has want in it.
func (o *Output) WaitFor(t testing.TB, want string) {
	t.Helper()
	for end := time.Now().Add(outputTime); !strings.Contains(o.String(), want); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %q in %q", want, o.String())
		}
	}
}

// LogAt returns the log at the path, in a directory that is noted now.
func LogAt(path string) logfile.Log {
	dir, err := logfile.NoteDir(filepath.Dir(path))
	if err != nil {
		panic(err)
	}
	return logfile.Log{Dir: dir, Name: filepath.Base(path)}
}
