package sandbox

import "path/filepath"

// The layout on disk (README.md has the tree). Every path of a pod or container follows from its id.
const containersDir = "containers"

func (e *Engine) podsDir() string       { return filepath.Join(e.cfg.Root, "pods") }
func (e *Engine) quarantineDir() string { return filepath.Join(e.cfg.Root, "quarantine") }
func (e *Engine) netnsDir() string      { return filepath.Join(e.cfg.Run, "netns") }

func (e *Engine) podRunDir(id string) string { return filepath.Join(e.cfg.Run, "pods", id) }

// bundleDir is where the runtime keeps config.json of a container.
func (e *Engine) bundleDir(id string) string { return filepath.Join(e.cfg.Run, "containers", id) }

// podPins are the pin files of a pod's namespaces but the network's, which is in the record.
type podPins struct{ ipc, uts, user string }

func (e *Engine) pins(id string) podPins {
	dir := e.podRunDir(id)
	return podPins{ipc: filepath.Join(dir, "ipc"), uts: filepath.Join(dir, "uts"), user: filepath.Join(dir, "user")}
}

// podFile is one of the files a pod's containers share: resolv.conf, hostname, hosts, shm.
func (e *Engine) podFile(id, name string) string { return filepath.Join(e.podRunDir(id), name) }
