package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMark: it stays the same, and one that cannot be used is replaced.
func TestMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mark")
	first := wantMark(t, path)
	if again := wantMark(t, path); again != first {
		t.Errorf("mark = %q, want %q as before", again, first)
	}
	copied := filepath.Join(t.TempDir(), "mark")
	for name, spoil := range map[string]func() error{
		"copied":     func() error { return os.Link(path, copied) },
		"empty":      func() error { return os.WriteFile(copied, nil, 0o600) },
		"short":      func() error { return Write(copied, 1, mark{"abcd", copied}) },
		"path":       func() error { return Write(copied, 1, mark{"../../../../../x", copied}) },
		"upper case": func() error { return Write(copied, 1, mark{strings.Repeat("AB", 8), copied}) },
	} {
		if err := errors.Join(os.RemoveAll(copied), spoil()); err != nil {
			t.Fatal(err)
		}
		if other := wantMark(t, copied); other == first {
			t.Errorf("%s: mark = %q, want another", name, other)
		}
	}
	if again := wantMark(t, path); again != first {
		t.Errorf("mark = %q after a copy was used, want %q", again, first)
	}
	if err := Write(path, 2, mark{first, path}); err != nil {
		t.Fatal(err)
	}
	if _, err := Mark(path); !errors.Is(err, ErrNewer) {
		t.Errorf("Mark of a newer podd's file = %v, want %v", err, ErrNewer)
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
