package report

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// The results of several runs are kept in the file: those of a spec that ran again are replaced.
func TestResults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.txt")
	spec := func(name, state, message string) Spec {
		s := Spec{ContainerHierarchyTexts: []string{"[sig-node] Pods"}, LeafNodeText: name, State: state,
			RunTime: 1500 * time.Millisecond}
		s.Failure.Message = message
		return s
	}
	for _, run := range []struct {
		specs []Spec
		want  []string
	}{
		{[]Spec{spec("a", "passed", ""), spec("b", "failed", "no pod\n\nin time"), spec("c", "interrupted", "")},
			[]string{"[sig-node] Pods a"}},
		{[]Spec{spec("b", "passed", ""), spec("c", "skipped", "wants another kernel")},
			[]string{"[sig-node] Pods a", "[sig-node] Pods b"}},
	} {
		r, err := Load(file)
		if err != nil {
			t.Fatal(err)
		}
		r.Add(time.Unix(0, 0), run.specs)
		if err := r.Save(file, "a comment\nof two lines"); err != nil {
			t.Fatal(err)
		}
		r, err = Load(file)
		if got := r.Passed(); err != nil || !slices.Equal(got, run.want) {
			t.Errorf("Passed() = %q, %v, want %q", got, err, run.want)
		}
	}
	data, err := os.ReadFile(file)
	const want = "# a comment\n# of two lines\n# 2 specs passed, 1 did not.\n" +
		"1970-01-01 passed      1.5s  [sig-node] Pods a\n" +
		"1970-01-01 passed      1.5s  [sig-node] Pods b\n1970-01-01 skipped     1.5s  [sig-node] Pods c\n" +
		"\twants another kernel\n"
	if err != nil || string(data) != want {
		t.Errorf("file = %q, %v, want %q", data, err, want)
	}
}

// A file with something else is refused: a run would overwrite it.
func TestResultsOfAnotherFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.txt")
	if err := os.WriteFile(file, []byte("all: build\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := Load(file); err == nil {
		t.Errorf("Load() = %v, want an error", r)
	}
}
