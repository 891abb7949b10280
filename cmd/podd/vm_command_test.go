package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFindProgram: the program beside podd is preferred to that in PATH.
func TestFindProgram(t *testing.T) {
	beside, inPath := t.TempDir(), t.TempDir()
	t.Setenv("PATH", inPath)
	_, err := findProgram("p", beside)
	if err == nil || !strings.Contains(err.Error(), beside) || !strings.Contains(err.Error(), "make vm") {
		t.Errorf("findProgram of a missing program = %v, want an error that names %s and what helps", err, beside)
	}
	for _, dir := range []string{inPath, beside} {
		want := filepath.Join(dir, "p")
		if err := os.WriteFile(want, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if got, err := findProgram("p", beside); err != nil || got != want {
			t.Errorf("findProgram = %q, %v, want %q", got, err, want)
		}
	}
}

// TestVMImage: `podd vm image` passes its arguments and exit status.
func TestVMImage(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\necho \"$@\"\nexit 3\n"
	if err := os.WriteFile(filepath.Join(dir, vmImageProgram), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Getenv("PODD_TEST_BINARY"), "vm", "image", "-driver", "uml", "--help")
	cmd.Env = []string{"PATH=" + dir}
	out, err := cmd.Output()
	if string(out) != "-driver uml --help\n" || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("output = %q, %v, want the arguments and exit status 3", out, err)
	}
}
