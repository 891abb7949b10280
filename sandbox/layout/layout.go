// Package layout names the files of pods and containers on the node: every path follows from an id. It touches no file
// but to list a directory. The engine and the packages below it use it.
package layout

import (
	"os"
	"path/filepath"
)

// Containers is the directory of the containers' records in that of their pod's.
const Containers = "containers"

// Layout is where podd keeps its files: absolute paths. The README of sandbox has the tree.
type Layout struct {
	// Root is the directory of the records, which survive a reboot.
	Root string
	// Run is the directory of what a reboot removes.
	Run string
}

// Pods is the directory of the records.
func (l Layout) Pods() string { return filepath.Join(l.Root, "pods") }

// Quarantine is where damaged records are moved to.
func (l Layout) Quarantine() string { return filepath.Join(l.Root, "quarantine") }

// Netns is the directory of the pinned network namespaces, which are named by pod.
func (l Layout) Netns() string { return filepath.Join(l.Run, "netns") }

// PodRuns is the directory of the directories that PodRun returns.
func (l Layout) PodRuns() string { return filepath.Join(l.Run, "pods") }

// PodRun is the directory of a pod's files and pins.
func (l Layout) PodRun(pod string) string { return filepath.Join(l.PodRuns(), pod) }

// Bundles is the directory of the directories that Bundle returns.
func (l Layout) Bundles() string { return filepath.Join(l.Run, "containers") }

// Bundle is the directory in which the runtime keeps config.json of a container.
func (l Layout) Bundle(container string) string { return filepath.Join(l.Bundles(), container) }

// Pins are the pin files of a pod's namespaces but the network's, which is in the record.
type Pins struct{ IPC, UTS, User string }

// Pins returns the pin files of a pod.
func (l Layout) Pins(pod string) Pins {
	dir := l.PodRun(pod)
	return Pins{IPC: filepath.Join(dir, "ipc"), UTS: filepath.Join(dir, "uts"), User: filepath.Join(dir, "user")}
}

// Names lists the entries of dir.
func Names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, err
}
