package settings

import (
	"os"
	"testing"
)

// TestResolve: the directories of all parts follow root and run, that of network namespaces only if it is below run.
func TestResolve(t *testing.T) {
	for netns, want := range map[string]string{"/run/link/netns": "/run/real/netns", "/run/netns": "/run/netns"} {
		c := Default()
		c.Root, c.Run, c.Network.NetnsDir = "/var/link", "/run/link", netns
		c.Resolve("/var/real", "/run/real")
		engine, images := c.EngineNode("boot"), c.ImageNode("boot")
		for got, want := range map[string]string{
			engine.Root: "/var/real", engine.Run: "/run/real", engine.NetnsDir: want, images.Root: "/var/real/storage",
			images.RunRoot: "/run/real/storage", c.NetworkDir(): "/var/real/network", c.ContainersDir(): "/run/real/containers",
		} {
			if got != want {
				t.Errorf("with namespaces in %s: directory %s, want %s", netns, got, want)
			}
		}
		if engine.BootID != "boot" || images.BootID != "boot" {
			t.Errorf("boot ids = %q, %q, want boot", engine.BootID, images.BootID)
		}
	}
}

func TestCgroupDriver(t *testing.T) {
	if !UseSystemdCgroup("systemd") || UseSystemdCgroup("cgroupfs") {
		t.Error("UseSystemdCgroup() is not the configured driver")
	}
	_, err := os.Stat("/run/systemd/system")
	if got, booted := UseSystemdCgroup("auto"), err == nil; got != booted {
		t.Errorf("UseSystemdCgroup(auto) = %v, want %v", got, booted)
	}
}
