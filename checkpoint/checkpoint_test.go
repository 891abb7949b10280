package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

type pod struct {
	Name  string            `json:"name"`
	Extra map[string]string `json:"extra,omitempty"`
}

func TestWriteRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.json")
	want := pod{Name: "web", Extra: map[string]string{"a": "b\nc"}}
	for range 2 { // the second write replaces
		if err := Write(path, 1, want); err != nil {
			t.Fatal(err)
		}
	}
	var got pod
	if err := Read(path, 1, &got); err != nil {
		t.Fatal(err)
	}
	if got.Name != want.Name || got.Extra["a"] != want.Extra["a"] {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	assertOnly(t, filepath.Dir(path), "record.json")
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600: records hold secrets", info.Mode())
	}
}

func TestReadToleratesUnknownFields(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	if err := Write(path, 1, map[string]any{"name": "web", "later": true}); err != nil {
		t.Fatal(err)
	}
	var got pod
	if err := Read(path, 1, &got); err != nil || got.Name != "web" {
		t.Fatalf("Read = %+v, %v, want the name %q", got, err, "web")
	}
}

func TestReadRefusesDamage(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	if err := Write(good, 2, pod{Name: "web"}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		data []byte
		want error
	}{
		"empty":            {nil, ErrCorrupt},
		"zero filled":      {make([]byte, 4096), ErrCorrupt},
		"truncated":        {data[:len(data)-3], ErrCorrupt},
		"header only":      {data[:strings.IndexByte(string(data), '\n')], ErrCorrupt},
		"body altered":     {[]byte(strings.Replace(string(data), "web", "wob", 1)), ErrCorrupt},
		"plain json":       {[]byte(`{"name":"web"}` + "\n"), ErrCorrupt},
		"appended":         {append(append([]byte{}, data...), 'x'), ErrCorrupt},
		"newer":            {data, ErrNewer},
		"larger than max":  {make([]byte, MaxSize+8192), ErrCorrupt},
		"negative version": {[]byte(strings.Replace(string(data), `"v":2`, `"v":-2`, 1)), ErrCorrupt},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "bad")
			if err := os.WriteFile(path, c.data, 0o600); err != nil {
				t.Fatal(err)
			}
			var got pod
			if err := Read(path, 1, &got); !errors.Is(err, c.want) || !strings.Contains(err.Error(), path) {
				t.Fatalf("got %v, want %v that names the file", err, c.want)
			}
		})
	}
	if err := Read(filepath.Join(dir, "absent"), 1, &pod{}); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Read of an absent record = %v, want fs.ErrNotExist", err)
	}
}

func TestWriteToReadOnlyDirectoryKeepsOldRecord(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "absent")
	if err := Write(filepath.Join(dir, "r"), 1, pod{}); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got %v, want not exist", err)
	}
	large := pod{Name: strings.Repeat("x", MaxSize)}
	if err := Write(filepath.Join(t.TempDir(), "r"), 1, large); !errdefs.IsResourceExhausted(err) {
		t.Errorf("Write of a record over the limit = %v, want %v", err, errdefs.ErrResourceExhausted)
	}
}

func TestWriteNew(t *testing.T) {
	parent := t.TempDir()
	fill := func(dir string) error {
		return errors.Join(WriteNew(filepath.Join(dir, "record.json"), 3, pod{Name: "a"}),
			WriteNew(filepath.Join(dir, "status.json"), 1, pod{Name: "b"}))
	}
	if err := Create(parent, "p1", fill); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(parent, "p1", "record.json")
	var got pod
	if err := Read(path, 3, &got); err != nil || got.Name != "a" {
		t.Errorf("record after WriteNew = %+v, %v, want the name %q", got, err, "a")
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("Stat of the record = %v, %v, want mode 0600", info, err)
	}
	assertOnly(t, filepath.Dir(path), "record.json", "status.json")
	if err := WriteNew(path, 3, pod{Name: "c"}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second WriteNew = %v, want fs.ErrExist", err)
	}
	if err := Read(path, 3, &got); err != nil || got.Name != "a" {
		t.Errorf("record after the second WriteNew = %+v, %v, want the name %q", got, err, "a")
	}
	if err := WriteNew(filepath.Join(parent, "large"), 1, pod{Name: strings.Repeat("x", MaxSize)}); err == nil {
		t.Error("a record over the limit was written")
	}
}

func TestCreateAppearsWholeOrNotAtAll(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "pods")
	boom := errors.New("boom")
	if err := Create(parent, "p1", func(dir string) error {
		if err := Write(filepath.Join(dir, "record.json"), 1, pod{}); err != nil {
			t.Fatal(err)
		}
		return boom
	}); !errors.Is(err, boom) {
		t.Fatalf("Create with a failing fill = %v, want its error %v", err, boom)
	}
	assertOnly(t, parent)

	fill := func(dir string) error { return Write(filepath.Join(dir, "record.json"), 1, pod{Name: "a"}) }
	if err := Create(parent, "p1", fill); err != nil {
		t.Fatal(err)
	}
	if err := Create(parent, "p1", fill); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("second create: got %v, want exist", err)
	}
	assertOnly(t, parent, "p1")
}

func TestRemoveIsIdempotent(t *testing.T) {
	parent := t.TempDir()
	if err := Create(parent, "p1", func(string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Remove(parent, "p1"); err != nil {
			t.Fatal(err)
		}
		assertOnly(t, parent)
	}
}

func TestSweepRemovesOnlyLeftovers(t *testing.T) {
	parent := t.TempDir()
	for _, d := range []string{".new-a", ".del-b", "c"} {
		if err := os.MkdirAll(filepath.Join(parent, d, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(parent, ".tmp-r-1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if names, err := List(parent); err != nil || len(names) != 1 || names[0] != "c" {
		t.Fatalf("List = %v, %v, want [c]", names, err)
	}
	if err := Sweep(parent); err != nil {
		t.Fatal(err)
	}
	assertOnly(t, parent, "c")
	if err := Sweep(filepath.Join(parent, "absent")); err != nil {
		t.Fatal(err)
	}
}

func TestNamesAreNotPaths(t *testing.T) {
	parent := t.TempDir()
	for _, name := range []string{"", ".", "..", "../x", "a/b", ".new-x", "a\x00b", strings.Repeat("a", 300)} {
		if err := Create(parent, name, func(string) error { return nil }); err == nil {
			t.Errorf("Create(%q) succeeded, want an error", name)
		}
		if err := Remove(parent, name); err == nil {
			t.Errorf("Remove(%q) succeeded, want an error", name)
		}
	}
}

func TestQuarantineKeepsEveryCopy(t *testing.T) {
	dir := t.TempDir()
	q := filepath.Join(dir, "quarantine")
	for range 2 {
		bad := filepath.Join(dir, "p1")
		if err := os.Mkdir(bad, 0o700); err != nil {
			t.Fatal(err)
		}
		to, err := Quarantine(bad, q)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(to); err != nil {
			t.Fatal(err)
		}
	}
	entries, _ := os.ReadDir(q)
	if len(entries) != 2 {
		t.Fatalf("%d entries, want 2", len(entries))
	}
}

func TestLockNamesItsHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if os.Getenv("CHECKPOINT_LOCK") != "" {
		_, err := Acquire(os.Getenv("CHECKPOINT_LOCK"))
		if err != nil {
			os.Stdout.WriteString(err.Error())
		}
		return
	}
	l, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	other := exec.Command(os.Args[0], "-test.run=TestLockNamesItsHolder")
	other.Env = append(os.Environ(), "CHECKPOINT_LOCK="+path)
	out, err := other.CombinedOutput()
	if err != nil {
		t.Fatal(err, string(out))
	}
	if !strings.Contains(string(out), "is held by process") || !strings.Contains(string(out), filepath.Base(os.Args[0])) {
		t.Fatalf("second process printed %q, want the holder's name", out)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	again, err := Acquire(path)
	if err != nil {
		t.Fatalf("Acquire after Unlock = %v, want no error", err)
	}
	again.Unlock()
}

func TestLayout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "layout")
	for _, step := range []struct {
		format int
		by     string
	}{{1, "podd 0.1"}, {1, "podd 0.1"}, {1, "podd 0.2"}, {2, "podd 1.0"}} {
		if err := CheckLayout(path, step.format, step.by); err != nil {
			t.Fatalf("CheckLayout(%+v) = %v, want no error", step, err)
		}
	}
	err := CheckLayout(path, 1, "podd 0.2")
	if !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), "podd 1.0") {
		t.Fatalf("got %v, want an error that names podd 1.0", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("{\"v\":1,\"sha256\":\"\"}\n{}"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p pod
		if err := decode(data, 1, &p); err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
			t.Fatalf("decode = %v, want ErrCorrupt, ErrNewer or none", err)
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	path := filepath.Join(b.TempDir(), "r")
	for b.Loop() {
		if err := Write(path, 1, pod{Name: "web"}); err != nil {
			b.Fatal(err)
		}
	}
}

func assertOnly(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("%s holds %v, want %v", dir, got, want)
	}
}

// TestCommit: the record has its final name, and only that.
func TestCommit(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "pods")
	fill := func(dir string) error { return WriteNew(filepath.Join(dir, "new.json"), 1, pod{Name: "a"}) }
	if err := Create(parent, "p1", fill); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(parent, "p1")
	if err := Commit(filepath.Join(dir, "new.json"), "record.json"); err != nil {
		t.Fatal(err)
	}
	assertOnly(t, dir, "record.json")
	var got pod
	if err := Read(filepath.Join(dir, "record.json"), 1, &got); err != nil || got.Name != "a" {
		t.Errorf("record after Commit = %+v, %v, want the name %q", got, err, "a")
	}
	if err := Commit(filepath.Join(dir, "new.json"), "record.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Commit of no record = %v, want %v", err, fs.ErrNotExist)
	}
}

// TestUnsynced: a reader sees a record before it is synced.
func TestUnsynced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.json")
	for _, name := range []string{"a", "b"} {
		if err := WriteUnsynced(path, 1, pod{Name: name}); err != nil {
			t.Fatal(err)
		}
		var got pod
		if err := Read(path, 1, &got); err != nil || got.Name != name {
			t.Errorf("record after WriteUnsynced = %+v, %v, want the name %q", got, err, name)
		}
	}
	if err := Sync(path); err != nil {
		t.Errorf("Sync = %v, want nil", err)
	}
	assertOnly(t, filepath.Dir(path), "record.json")
	if err := Sync(filepath.Join(filepath.Dir(path), "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Sync of an absent record = %v, want %v", err, fs.ErrNotExist)
	}
}
