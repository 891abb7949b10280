package settings

import (
	"os"
	"path/filepath"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/record"
)

// Resolve replaces root and run by their paths without symbolic links, as in the kernel's mount table, also in the
// netns_dir below run.
func (c *Config) Resolve(root, run string) {
	if c.Network.NetnsDir == filepath.Join(c.Run, "netns") {
		c.Network.NetnsDir = filepath.Join(run, "netns")
	}
	c.Root, c.Run = root, run
}

// EngineNode returns the facts of the node for the engine, as far as they follow from the configuration.
func (c *Config) EngineNode(bootID string) sandbox.Node {
	return sandbox.Node{
		BootID: bootID, Layout: record.Layout{Root: c.Root, Run: c.Run, NetnsDir: c.Network.NetnsDir},
		SystemdCgroup: UseSystemdCgroup(c.Runtime.CgroupDriver),
	}
}

// ImageNode returns the facts of the node for the image store, whose directories are below root and run.
func (c *Config) ImageNode(bootID string) image.Node {
	return image.Node{
		Root: filepath.Join(c.Root, "storage"), RunRoot: filepath.Join(c.Run, "storage"), BootID: bootID,
	}
}

// NetworkDir is the directory of the network's records.
func (c *Config) NetworkDir() string { return filepath.Join(c.Root, "network") }

// ContainersDir is the directory of the containers' bundles.
func (c *Config) ContainersDir() string { return filepath.Join(c.Run, "containers") }

// UseSystemdCgroup resolves the cgroup driver. auto means systemd if it is process 1, see sd_booted(3).
func UseSystemdCgroup(driver string) bool {
	if driver != CgroupAuto {
		return driver == CgroupSystemd
	}
	info, err := os.Lstat("/run/systemd/system")
	return err == nil && info.IsDir()
}
