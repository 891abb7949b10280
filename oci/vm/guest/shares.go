package guest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/vm/guest/env"
)

// shares are the files of the host that containers have. The kernel mounts each directory as a filesystem at its first
// use, with its own device number, by which programs know files from each other. That mount must be the same one for
// all containers, for locks and sockets, so the agent makes it before a container does.
type shares struct {
	dir     string
	unmount func(path string)
	mu      sync.Mutex
	users   map[string][]string // paths of shares, by container
}

func newShares() *shares {
	return &shares{dir: env.SharesDir, users: map[string][]string{}, unmount: func(path string) {
		_ = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // a file, or with a QEMU that mounts them all at once
	}}
}

// begin mounts the shares that the config.json of a container names.
func (s *shares) begin(id, bundle string) {
	data, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return // the runtime says so
	}
	var spec specs.Spec
	if json.Unmarshal(data, &spec) != nil || spec.Root == nil {
		return
	}
	paths := []string{spec.Root.Path}
	for i := range spec.Mounts {
		paths = append(paths, spec.Mounts[i].Source)
	}
	paths = slices.DeleteFunc(paths, func(p string) bool { return !strings.HasPrefix(p, s.dir+"/") })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[id] = paths
	for _, p := range paths {
		_, _ = os.Stat(p + "/.")
	}
}

// end unmounts those that no other container has.
func (s *shares) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := s.users[id]
	delete(s.users, id)
	for _, path := range gone {
		if !s.used(path) {
			s.unmount(path)
		}
	}
}

func (s *shares) used(path string) bool {
	for _, paths := range s.users {
		if slices.Contains(paths, path) {
			return true
		}
	}
	return false
}
