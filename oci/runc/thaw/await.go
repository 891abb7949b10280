package thaw

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/podd-project/podd/oci/process"
)

// Await returns when the programs that a killed podd started for files of the map have exited, or when ctx ends. Until
// then CRIU may go on, and freeze the container again. It takes two and a half seconds at most.
func Await(ctx context.Context, values map[string]string) error {
	locals, err := process.Locals()
	errs := []error{err}
	for _, p := range locals {
		if filepath.Base(p.Program) == programName && worksOn(p.Pid, values) {
			errs = append(errs, p.Wait(ctx))
		}
	}
	return errors.Join(errs...)
}

// worksOn reports whether the program with the pid thaws one of the files, by its command line.
func worksOn(pid int, values map[string]string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false // it has exited
	}
	args := strings.Split(string(line), "\x00")
	for file, value := range values {
		if slices.Contains(args, file+"="+value) {
			return true
		}
	}
	return false
}
