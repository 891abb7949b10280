package host

import (
	"os"
	"path/filepath"
)

// otherRuntimes are the directories in which CRI-O and containerd keep a directory for each of their containers.
var otherRuntimes = []string{
	"/run/containers/storage/overlay-containers", "/var/lib/containers/storage/overlay-containers",
	"/run/containerd/io.containerd.runtime.v2.task/k8s.io",
}

// OtherRuntimeHas reports whether CRI-O or containerd has a container with this id. On a node that was switched to podd
// without being drained, its cgroup can be in that of a pod which podd runs now.
func OtherRuntimeHas(id string) bool {
	for _, dir := range otherRuntimes {
		if _, err := os.Lstat(filepath.Join(dir, id)); err == nil {
			return true
		}
	}
	return false
}
