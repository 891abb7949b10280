package leak

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// mounts lists mount points. A mount point with several mounts is listed once for each.
func mounts(Options) (map[string]string, error) {
	list, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, m := range list {
		if strings.HasPrefix(m.Mountpoint, "/run/credentials/") || strings.HasPrefix(m.Mountpoint, "/run/user/") {
			continue // systemd's, for services and logins
		}
		key := m.Mountpoint
		for n := 2; found[key] != ""; n++ {
			key = fmt.Sprintf("%s (%d)", m.Mountpoint, n)
		}
		found[key] = strings.TrimSpace(m.FSType + " " + m.Source + " " + m.Root)
	}
	return found, nil
}

// netns lists network namespaces: those with a name, and those with a process in them.
func netns(Options) (map[string]string, error) {
	found := map[string]string{}
	for _, dir := range []string{"/run/netns", "/var/run/netns"} {
		names, err := filepath.Glob(dir + "/*")
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			found[n] = ""
		}
	}
	procs, err := readProcesses()
	if err != nil {
		return nil, err
	}
	for _, p := range procs {
		if p.netns != "" && !fleeting(p.cgroup) {
			found[p.netns] = "process " + p.String()
		}
	}
	return found, nil
}

// cgroups lists the directories of every mounted hierarchy, except those of systemd's services and logins.
func cgroups(Options) (map[string]string, error) {
	hierarchies, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, h := range hierarchies {
		err := filepath.WalkDir(h.Mountpoint, func(path string, d os.DirEntry, err error) error {
			switch {
			case err != nil && path == h.Mountpoint:
				return err
			case err != nil || !d.IsDir(): // removed meanwhile
				return nil
			case fleeting(path):
				return filepath.SkipDir
			}
			found[path] = ""
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// fleeting reports whether the cgroup is of a systemd unit that podd has not made.
func fleeting(path string) bool {
	name := filepath.Base(path)
	for _, suffix := range []string{".service", ".socket", ".mount", ".timer", ".swap"} {
		if strings.HasSuffix(name, suffix) && !strings.Contains(name, "podd") {
			return true
		}
	}
	return strings.HasPrefix(name, "session-") || strings.HasPrefix(name, "user-")
}

// files lists the files that Options.Files match.
func files(o Options) (map[string]string, error) {
	found := map[string]string{}
	for _, pattern := range o.Files {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pattern, err)
		}
		for _, p := range paths {
			found[p] = pattern
		}
	}
	return found, nil
}
