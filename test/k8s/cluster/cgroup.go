package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// hierarchies returns the mounted cgroup hierarchies. In the hybrid layout v2, which has no controllers there, is last.
func hierarchies() (paths []string, unified bool, err error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	var v2 string
	for s := bufio.NewScanner(f); s.Scan(); {
		before, after, ok := strings.Cut(s.Text(), " - ")
		fields := strings.Fields(before)
		if !ok || len(fields) < 5 || !strings.HasPrefix(fields[4], "/sys/fs/cgroup") {
			continue
		}
		switch fstype, _, _ := strings.Cut(after, " "); fstype {
		case "cgroup":
			paths = append(paths, fields[4])
		case "cgroup2":
			v2 = fields[4]
		}
	}
	if len(paths) == 0 && v2 != "" {
		return []string{v2}, true, nil
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	if v2 != "" {
		paths = append(paths, v2) // the kubelet creates its cgroups there too
	}
	return paths, false, nil
}

// makeCgroup creates the cgroup that is a kubelet's root, with all controllers enabled.
func makeCgroup(name string) error {
	paths, unified, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range paths {
		dir := filepath.Join(h, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // v1: no process can run in a new, empty cpuset
			data, err := os.ReadFile(filepath.Join(h, file))
			if unified || errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err := errors.Join(err, os.WriteFile(filepath.Join(dir, file), data, 0o644)); err != nil {
				return err
			}
		}
		if unified {
			if err := delegate(h, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// delegate enables all controllers for the children of parent and of dir (v2).
func delegate(parent, dir string) error {
	all, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, at := range []string{parent, dir} {
		for _, c := range strings.Fields(string(all)) {
			if err := os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte("+"+c), 0o644); err != nil {
				return fmt.Errorf("enable %s in %s: %w", c, at, err)
			}
		}
	}
	return nil
}

// removeCgroup removes the cgroup and all below it, which must have no processes.
func removeCgroup(name string) error {
	paths, _, err := hierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range paths {
		var dirs []string
		err := filepath.WalkDir(filepath.Join(h, name), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
		errs = append(errs, err)
		slices.Reverse(dirs) // children before parents
		for _, dir := range dirs {
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// thaw resumes the processes in the cgroup and below. On cgroup v1 SIGKILL does not end a frozen process, and runc
// freezes a container while it kills its processes one by one: if runc is killed then, they stay frozen.
func thaw(name string) error {
	paths, unified, err := hierarchies()
	if err != nil || unified {
		return err
	}
	for _, h := range paths {
		if filepath.Base(h) != "freezer" {
			continue
		}
		err := filepath.WalkDir(filepath.Join(h, name), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Name() == "freezer.state" {
				err = os.WriteFile(path, []byte("THAWED"), 0)
			}
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) { // removed meanwhile
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// inCgroup reports whether a process (a directory of /proc) is in one of the cgroups or below.
func inCgroup(proc string, names []string) bool {
	data, err := os.ReadFile(filepath.Join(proc, "cgroup"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		for _, n := range names {
			if parts[2] == n || strings.HasPrefix(parts[2], n+"/") {
				return true
			}
		}
	}
	return false
}
