package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
)

// The layout on disk (README.md has the tree). Every path of a pod or container follows from its id.
const containersDir = "containers"

// paths are the paths below the root and run directories.
type paths struct{ root, run string }

func (p paths) pods() string       { return filepath.Join(p.root, "pods") }
func (p paths) quarantine() string { return filepath.Join(p.root, "quarantine") }
func (p paths) netns() string      { return filepath.Join(p.run, "netns") }
func (p paths) podRuns() string    { return filepath.Join(p.run, "pods") }
func (p paths) bundles() string    { return filepath.Join(p.run, "containers") }

func (p paths) podRun(id string) string { return filepath.Join(p.podRuns(), id) }

// bundle is the directory in which the runtime keeps config.json of a container.
func (p paths) bundle(id string) string { return filepath.Join(p.bundles(), id) }

// podPins are the pin files of a pod's namespaces but the network's, which is in the record.
type podPins struct{ ipc, uts, user string }

func (p paths) pins(id string) podPins {
	dir := p.podRun(id)
	return podPins{ipc: filepath.Join(dir, "ipc"), uts: filepath.Join(dir, "uts"), user: filepath.Join(dir, "user")}
}

// podFile is one of the files that a pod's containers share: resolv.conf, hostname, hosts, shm.
func (p paths) podFile(id, name string) string { return filepath.Join(p.podRun(id), name) }

// removePodRun removes <run>/pods/<pod>, which holds only plain files once everything in it is unmounted.
func (p paths) removePodRun(id string) error {
	if err := os.RemoveAll(p.podRun(id)); err != nil {
		return fmt.Errorf("remove pod files: %w", err)
	}
	return nil
}

// names lists the entries of dir.
func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var ids []string
	for _, entry := range entries {
		ids = append(ids, entry.Name())
	}
	return ids, err
}
