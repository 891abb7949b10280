package cgroups

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/process"
)

// Freeze pauses the container and returns when all its processes are. The error is errdefs.ErrFailedPrecondition if the
// container does not have its own freezer. After an error the caller must thaw it.
func (d Dirs) Freeze(ctx context.Context) error {
	file, value, ok := d.freezer()
	if !ok {
		return fmt.Errorf("%w: the container does not have its own freezable cgroup", errdefs.ErrFailedPrecondition)
	}
	err := process.Poll(ctx, func() bool {
		// On cgroup v1 a group with a process that was forking stays FREEZING until this is written again.
		if err := os.WriteFile(file, []byte(value), 0); err != nil {
			return false
		}
		return d.allFrozen()
	})
	if err != nil {
		return fmt.Errorf("freeze %s: %w", filepath.Dir(file), err)
	}
	return nil
}

// freezer returns the file that freezes the container, and what to write to it.
func (d Dirs) freezer() (file, value string, ok bool) {
	if dir, ok := d["freezer"]; ok {
		return filepath.Join(dir, "freezer.state"), "FROZEN", true
	}
	dir, ok := d[unified]
	return filepath.Join(dir, "cgroup.freeze"), "1", ok
}

// allFrozen reports whether every process is paused.
func (d Dirs) allFrozen() bool {
	if dir, ok := d["freezer"]; ok {
		b, _ := os.ReadFile(filepath.Join(dir, "freezer.state"))
		return strings.HasPrefix(string(b), "FROZEN")
	}
	b, _ := os.ReadFile(filepath.Join(d[unified], "cgroup.events"))
	return strings.Contains(string(b), "frozen 1")
}

// Thawing returns what Thaw writes, by file.
func (d Dirs) Thawing() map[string]string {
	files := map[string]string{}
	if dir, ok := d["freezer"]; ok {
		files[filepath.Join(dir, "freezer.state")] = "THAWED"
	}
	if dir, ok := d[unified]; ok {
		files[filepath.Join(dir, "cgroup.freeze")] = "0"
	}
	return files
}

// Thaw resumes a paused container. On cgroup v1 SIGKILL does not end frozen processes.
func (d Dirs) Thaw() {
	for file, value := range d.Thawing() {
		_ = os.WriteFile(file, []byte(value), 0)
	}
}

// ThawAll thaws until no process is paused, or ctx ends. A container whose cgroup is gone is not paused.
func (d Dirs) ThawAll(ctx context.Context) error {
	err := process.Poll(ctx, func() bool {
		d.Thaw()
		return !d.Frozen()
	})
	if err != nil {
		return fmt.Errorf("thaw the container: %w", err)
	}
	return nil
}

// Frozen reports whether the container is paused.
func (d Dirs) Frozen() bool {
	if dir, ok := d["freezer"]; ok {
		b, _ := os.ReadFile(filepath.Join(dir, "freezer.state"))
		return strings.HasPrefix(string(b), "FR") // FREEZING or FROZEN
	}
	b, _ := os.ReadFile(filepath.Join(d[unified], "cgroup.freeze"))
	return strings.HasPrefix(string(b), "1")
}

// AnonymousMemory returns the size in bytes of the container's memory that is not a copy of files and that a checkpoint
// must write. It is 0 if that cannot be read.
func (d Dirs) AnonymousMemory() (bytes uint64) {
	dir, names := d[unified], []string{"anon", "shmem"}
	if v1, ok := d["memory"]; ok {
		dir, names = v1, []string{"total_rss", "total_shmem"}
	}
	text, _ := os.ReadFile(filepath.Join(dir, "memory.stat"))
	pairs(text, func(key []byte, n uint64) {
		if slices.Contains(names, string(key)) {
			bytes += n
		}
	})
	return bytes
}
