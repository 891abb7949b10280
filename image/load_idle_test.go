package image_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image"
)

// TestLargeLoadGivesWay: the process that loads a large archive runs only on idle processors. If the archive is
// preloaded, pods may wait for it, and the process has podd's priority.
func TestLargeLoadGivesWay(t *testing.T) {
	for name, c := range map[string]struct {
		load func(s *image.Store, archive string) error
		idle bool
	}{
		"load": {func(s *image.Store, archive string) error {
			_, err := s.LoadFile(t.Context(), archive)
			return err
		}, true},
		"preload": {func(s *image.Store, _ string) error { return s.Load(t.Context()) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			s := open(t, cfg)
			archive := filepath.Join(cfg.PreloadDir, "large.tar")
			writeDockerArchive(t, archive, map[string]v1.Image{
				"registry.test/large:v1": craft(t, nil, tree{"large": strings.Repeat("x", 16<<20)}),
			})
			if err := os.Truncate(archive, 64<<20); err != nil { // zeros are the end of a tar
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- c.load(s, archive) }()
			var seen, idle bool // the process that reads; those that unpack are its children
			for done := false; !done; {
				select {
				case err := <-ended:
					if err != nil {
						t.Error(err)
					}
					done = true
				case <-time.After(time.Millisecond):
				}
				for _, pid := range pullProcesses(t, os.Getpid()) {
					if attr, err := unix.SchedGetAttr(pid, 0); err == nil {
						seen, idle = true, idle || attr.Policy == unix.SCHED_IDLE
					}
				}
			}
			if !seen || idle != c.idle {
				t.Errorf("the process was seen: %t, idle: %t, want it idle: %t", seen, idle, c.idle)
			}
		})
	}
}
