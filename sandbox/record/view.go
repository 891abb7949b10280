package record

import "path/filepath"

// PodView is a pod at one moment. It is read-only.
type PodView struct {
	*Pod
	Status PodStatus
}

// ContainerView is a container, and its pod, at one moment. It is read-only.
type ContainerView struct {
	*Container
	Status ContainerStatus
	Pod    PodView
}

// LogPath returns the absolute path of the CRI log, "" for none.
func (c ContainerView) LogPath() string {
	dir, rel := c.Pod.Config.GetLogDirectory(), c.Config.GetLogPath()
	if dir == "" || rel == "" {
		return ""
	}
	return filepath.Join(dir, rel)
}
