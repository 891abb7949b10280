package checkpoint

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestMark: it stays the same, and a damaged one is replaced: nothing else depends on it.
func TestMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mark")
	first := wantMark(t, path)
	if again := wantMark(t, path); again != first {
		t.Errorf("mark = %q, want %q as before", again, first)
	}
	for name, spoil := range map[string]func() error{
		"empty": func() error { return os.Truncate(path, 0) },
		"short": func() error { return Write(path, 1, mark{"abcd"}) },
		"path":  func() error { return Write(path, 1, mark{"../../../../../x"}) },
		"newer": func() error { return Write(path, 2, mark{first}) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if other := wantMark(t, path); other == first {
			t.Errorf("%s: mark = %q, want another", name, other)
		}
	}
	if _, err := Mark(filepath.Join(path, "below a file")); err == nil {
		t.Error("Mark of an impossible path = nil, want an error")
	}
}

func wantMark(t *testing.T, path string) string {
	t.Helper()
	got, err := Mark(path)
	if err != nil || !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(got) {
		t.Fatalf("mark = %q, %v, want 16 hexadecimal digits", got, err)
	}
	return got
}
