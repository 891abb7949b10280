package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDescriptorsAreNotHandedOn starts the daemon with a file open, and looks what the kernel does with it when the
// daemon starts a program.
func TestDescriptorsAreNotHandedOn(t *testing.T) {
	s := newSite(t)
	secret, err := os.Create(s.path("secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	// The daemon asks a CNI plugin for its version; this one tells what it was given.
	bin := s.path("cni")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nls -l /proc/self/fd >" + s.path("seen.new") + " && mv " + s.path("seen.new") + " " + s.path("seen") + "\n"
	if err := os.WriteFile(filepath.Join(bin, "bridge"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	// Of this process, which is the daemon's parent: not closed on exec.
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
		t.Fatal("no plugin was started")
	}
	if strings.Contains(string(seen), s.path("secret")) {
		t.Errorf("a plugin got descriptor %d of the daemon's parent:\n%s", fd, seen)
	}
}
