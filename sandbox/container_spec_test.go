package sandbox

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestMountKeepsRestrictions: a mount has the restrictions of its source on the node, whatever is requested.
func TestMountKeepsRestrictions(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	source := t.TempDir()
	must(t, unix.Mount("podd-test", source, "tmpfs", unix.MS_NODEV|unix.MS_NOEXEC, ""))
	t.Cleanup(func() { must(t, unix.Unmount(source, 0)) })
	m := newMachine(t)
	e, _ := newEngine(t, m)
	config := containerConfig("main")
	config.Mounts = []*cri.Mount{{HostPath: source, ContainerPath: "/volume", MountOptions: []string{"nosuid"}}}
	id, err := e.CreateContainer(t.Context(), mustRunPod(t, e, "web"), config)
	must(t, err)
	data, err := os.ReadFile(filepath.Join(m.bundle(id), "config.json"))
	must(t, err)
	var s specs.Spec
	must(t, json.Unmarshal(data, &s))
	i := slices.IndexFunc(s.Mounts, func(m specs.Mount) bool { return m.Destination == "/volume" })
	for _, want := range []string{"nosuid", "nodev", "noexec"} {
		if !slices.Contains(s.Mounts[i].Options, want) {
			t.Errorf("options of the mount = %v, want %s among them", s.Mounts[i].Options, want)
		}
	}
	removeEverything(t, e)
	noLeaks(t, m)
}
