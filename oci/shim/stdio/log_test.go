package stdio

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podd-project/podd/oci/logfile"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 5, time.UTC)

// logAt returns the log at the path, in a directory that is noted now.
func logAt(t *testing.T, path string) logfile.Log {
	t.Helper()
	dir, err := logfile.NoteDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	return logfile.Log{Dir: dir, Name: filepath.Base(path)}
}

func newLog(t *testing.T) *log {
	t.Helper()
	l, err := openLog(logAt(t, filepath.Join(t.TempDir(), "0.log")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.close() })
	l.now = func() time.Time { return noon }
	return l
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestLogLines(t *testing.T) {
	const at = "2026-01-02T12:00:00.000000005Z "
	for _, tt := range []struct {
		name   string
		pieces []string
		want   []string
	}{
		{"line", []string{"a b\n"}, []string{"F a b"}},
		{"lines", []string{"a\nb\n"}, []string{"F a", "F b"}},
		{"empty line", []string{"\n\n"}, []string{"F ", "F "}},
		{"parts", []string{"a", "b", "c\nd\n"}, []string{"P a", "P b", "F c", "F d"}},
		{"newline alone", []string{"a", "\n"}, []string{"P a", "F "}},
		{"unfinished", []string{"a\nb"}, []string{"F a", "P b", "F "}},
		{"nothing", nil, nil},
		{"bytes", []string{"\x00\xff\r\n"}, []string{"F \x00\xff\r"}},
	} {
		l := newLog(t)
		want := ""
		for _, line := range tt.want {
			want += at + "stdout " + line + "\n"
		}
		for _, p := range tt.pieces {
			l.write(streamStdout, []byte(p))
		}
		l.endLine(streamStdout)
		if got := content(t, l.file.Path()); got != want {
			t.Errorf("%s: %q, want %q", tt.name, got, want)
		}
	}
}

func TestLogStreamsApart(t *testing.T) {
	l := newLog(t)
	l.write(streamStdout, []byte("out"))
	l.write(streamStderr, []byte("err\n"))
	l.endLine(streamStderr) // is at the beginning of a line
	l.write(streamStdout, []byte("put\n"))
	got := strings.Split(strings.TrimSpace(content(t, l.file.Path())), "\n")
	for i, want := range []string{" stdout P out", " stderr F err", " stdout F put"} {
		if i >= len(got) || !strings.HasSuffix(got[i], want) {
			t.Errorf("line %d of %q, want %q", i, got, want)
		}
	}
}

func TestLogReopen(t *testing.T) {
	l := newLog(t)
	l.write(streamStdout, []byte("one\n"))
	if err := l.reopen(); err != nil {
		t.Fatal(err)
	}
	l.write(streamStdout, []byte("two\n"))
	if n := strings.Count(content(t, l.file.Path()), "\n"); n != 2 {
		t.Errorf("log that was not moved: %d lines after reopen, want 2", n)
	}
	if err := os.Rename(l.file.Path(), l.file.Path()+".1"); err != nil {
		t.Fatal(err)
	}
	l.write(streamStdout, []byte("three\n"))
	if err := l.reopen(); err != nil {
		t.Fatal(err)
	}
	l.write(streamStdout, []byte("four\n"))
	if old, now := content(t, l.file.Path()+".1"), content(t, l.file.Path()); strings.Count(old, "\n") != 3 ||
		!strings.HasSuffix(now, "F four\n") || strings.Count(now, "\n") != 1 {
		t.Errorf("old log = %q, new log = %q, want 3 lines and the line four", old, now)
	}
}

// TestLogReopenRefused: what cannot be opened leaves the old file in use.
func TestLogReopenRefused(t *testing.T) {
	l := newLog(t)
	target := filepath.Join(t.TempDir(), "victim")
	if err := errors.Join(os.Rename(l.file.Path(), l.file.Path()+".1"), os.Symlink(target, l.file.Path())); err != nil {
		t.Fatal(err)
	}
	if err := l.reopen(); err == nil {
		t.Error("reopen with a symbolic link succeeded, want an error")
	}
	l.write(streamStdout, []byte("kept\n"))
	if _, err := os.Stat(target); err == nil || !strings.Contains(content(t, l.file.Path()+".1"), "kept") {
		t.Errorf("stat of the link's target = %v, old log = %q, want no target and %q in the log",
			err, content(t, l.file.Path()+".1"), "kept")
	}
}

func TestLogRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/dev/null", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	file := logAt(t, filepath.Join(dir, "0.log"))
	for _, name := range []string{"link", ".", "no/such", ""} {
		file.Name = name
		if l, err := openLog(file); err == nil {
			_ = l.close()
			t.Errorf("openLog(%q) succeeded, want an error", name)
		}
	}
	l, err := openLog(logfile.Log{})
	if err != nil {
		t.Fatal(err)
	}
	l.write(streamStdout, []byte("x"))
	l.endLine(streamStdout)
	if err := errors.Join(l.reopen(), l.close()); err != nil {
		t.Errorf("reopen and close without a log = %v, want nil", err)
	}
}

// TestLogFullDisk: a line that does not fit leaves no half of it.
func TestLogFullDisk(t *testing.T) {
	l := newLog(t)
	l.write(streamStdout, []byte("before\n"))
	limited := l.f
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	l.f = full
	l.write(streamStdout, []byte("lost\n"))
	full.Close()
	l.f = limited
	l.write(streamStdout, []byte("after\n"))
	got := content(t, l.file.Path())
	if strings.Contains(got, "lost") || !strings.HasSuffix(got, "F after\n") || strings.Count(got, "\n") != 2 {
		t.Errorf("log = %q, want the lines before and after", got)
	}
}

func FuzzLog(f *testing.F) {
	f.Add([]byte("a\nb"), 1)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		if len(data) == 0 {
			return
		}
		l := newLog(t)
		at := max(cut, -cut) % len(data)
		l.write(streamStdout, data[:max(at, 0)])
		l.write(streamStdout, data[max(at, 0):])
		l.endLine(streamStdout)
		text := ""
		for line := range strings.Lines(content(t, l.file.Path())) {
			f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
			if len(f) != 4 || f[1] != "stdout" || f[2] != "F" && f[2] != "P" {
				t.Fatalf("line = %q, want time, stdout, F or P and text", line)
			}
			text += f[3]
			if f[2] == "F" {
				text += "\n"
			}
		}
		want := string(data)
		if !strings.HasSuffix(want, "\n") {
			want += "\n"
		}
		if text != want {
			t.Errorf("%q, want %q", text, want)
		}
	})
}
