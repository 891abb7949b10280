package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDescriptorsAreNotInherited starts the daemon with an open file that is not close-on-exec, and checks that a
// program that the daemon starts does not have it.
func TestDescriptorsAreNotInherited(t *testing.T) {
	s := newSite(t)
	secret, err := os.Create(s.path("secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	// The daemon runs a CNI plugin for its version. This one writes its open files to a file.
	bin := s.path("cni")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nls -l /proc/self/fd >" + s.path("seen.new") +
		" && mv " + s.path("seen.new") + " " + s.path("seen") + "\n"
	if err := os.WriteFile(filepath.Join(bin, "bridge"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	// F_DUPFD clears close-on-exec, so the daemon inherits it.
	fd, err := unix.FcntlInt(secret.Fd(), unix.F_DUPFD, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	s.start(t, nil, "--set", "network.bin_dirs=[\""+bin+"\"]")
	var seen []byte
	for deadline := time.Now().Add(patience); seen == nil && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		seen, _ = os.ReadFile(s.path("seen"))
	}
	if len(seen) == 0 {
		t.Fatal("the daemon ran no plugin")
	}
	if strings.Contains(string(seen), s.path("secret")) {
		t.Errorf("a plugin inherited descriptor %d:\n%s", fd, seen)
	}
}
