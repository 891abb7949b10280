package stdio

import (
	"bytes"
	"io"
	"os"
	"sync"
	"time"

	"github.com/podd-project/podd/oci/logfile"
)

// The streams, as numbered by conmon on the attach socket.
const (
	firstStream  byte = 2
	streamStdout byte = 2
	streamStderr byte = 3
)

// log writes the CRI log: "<time> <stream> <F|P> <text>\n", F for a full line and P for a part of one. If the log
// cannot be written, as when the disk is full, lines are lost: the container must not wait.
type log struct {
	file logfile.Log

	mu sync.Mutex
	// f is nil if output is discarded.
	f *os.File
	// open is true for a stream whose last piece ended without a newline.
	open map[byte]bool
	buf  bytes.Buffer
	now  func() time.Time
}

func openLog(file logfile.Log) (l *log, err error) {
	l = &log{file: file, open: map[byte]bool{}, now: time.Now}
	if file != (logfile.Log{}) {
		l.f, err = file.Open()
	}
	return l, err
}

// write logs a piece of a stream's output. An unfinished line is written at once, as a part: readers of the log see a
// prompt, and nothing is lost with the process.
func (l *log) write(stream byte, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return
	}
	head := l.header(stream)
	for len(data) > 0 {
		line, rest, whole := bytes.Cut(data, []byte{'\n'})
		l.line(head, whole, line)
		l.open[stream] = !whole
		data = rest
	}
	l.flush()
}

// endLine ends a line that the stream left unfinished.
func (l *log) endLine(stream byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil || !l.open[stream] {
		return
	}
	l.open[stream] = false
	l.line(l.header(stream), true, nil)
	l.flush()
}

// timeFormat is RFC 3339 with nine digits, as the kubelet parses it.
const timeFormat = "2006-01-02T15:04:05.000000000Z07:00"

func (l *log) header(stream byte) string {
	name := "stdout"
	if stream == streamStderr {
		name = "stderr"
	}
	return l.now().Format(timeFormat) + " " + name + " "
}

func (l *log) line(head string, whole bool, text []byte) {
	tag := "P "
	if whole {
		tag = "F "
	}
	l.buf.WriteString(head)
	l.buf.WriteString(tag)
	l.buf.Write(text)
	l.buf.WriteByte('\n')
}

// flush writes the lines with one call. A piece that was written partly is truncated away, so that the next line is
// complete.
func (l *log) flush() {
	defer l.buf.Reset()
	n, err := l.f.Write(l.buf.Bytes())
	if err == nil || n == 0 {
		return
	}
	if end, err := l.f.Seek(0, io.SeekEnd); err == nil {
		_ = l.f.Truncate(end - int64(n))
	}
}

// reopen continues in a new file if the log was moved away.
func (l *log) reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	f, err := l.file.Open()
	if err != nil {
		return err
	}
	old := l.f
	l.f = f // also if it is the same file
	return old.Close()
}

func (l *log) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	return l.f.Close()
}
