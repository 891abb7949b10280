package record

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/checkpoint"
)

// committer is a disk that commits in its own way.
type committer struct {
	checkpoint.Files
	commit func(path, final string) error
}

func (c committer) Commit(path, final string) error { return c.commit(path, final) }

// TestReadBesideCommit reads a record while Commit renames it.
func TestReadBesideCommit(t *testing.T) {
	rename := func(path, final string) error { return os.Rename(path, filepath.Join(filepath.Dir(path), final)) }
	parent := t.TempDir()
	for i := range 300 {
		id := fmt.Sprint("p", i)
		dir := filepath.Join(parent, id)
		start, renamed := make(chan struct{}), make(chan struct{})
		var readers, reading sync.WaitGroup
		for range 4 {
			reading.Add(1)
			readers.Go(func() {
				<-start
				for reads := 0; ; reads++ {
					if _, _, _, err := ReadPod(dir, "boot-1"); err != nil {
						t.Errorf("ReadPod = %v, want nil", err)
					}
					if reads == 0 {
						reading.Done()
					}
					select {
					case <-renamed:
						return
					default:
					}
				}
			})
		}
		commit := func(path, final string) error {
			defer close(renamed)
			close(start)
			reading.Wait()
			return rename(path, final)
		}
		saved, err := Create(committer{commit: commit}, dir, Pod{ID: id, Config: &cri.PodSandboxConfig{}, BootID: "boot-1"},
			PodStatus{State: PodCreating})
		if err != nil {
			t.Fatal(err)
		}
		if err := saved.Wait(); err != nil {
			t.Fatal(err)
		}
		readers.Wait()
	}
}
