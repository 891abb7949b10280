package runc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podd-project/podd/oci"
)

// TestProbeCheckpoints: what a handler can checkpoint, and why not.
func TestProbeCheckpoints(t *testing.T) {
	const good = "#!/bin/sh\necho Version: 4.1.1\n"
	for name, test := range map[string]struct {
		runtime, criu string // criu is a script, "" for none
		config        string
		want          oci.Checkpoints // reasons are parts of them
	}{
		"good": {"runc version 1.5.2", good, "criu", oci.Checkpoints{Containers: true, NoPods: "gVisor"}},
		"none": {"runc version 1.5.2", "", "criu", oci.Checkpoints{NoPods: "gVisor", NoContainers: "no criu in"}},
		"off":  {"runc version 1.5.2", good, "", oci.Checkpoints{NoPods: "gVisor", NoContainers: "runtime.criu"}},
		"old": {"runc version 1.5.2", "#!/bin/sh\necho Version: 3.17.1\n", "criu",
			oci.Checkpoints{NoPods: "gVisor", NoContainers: "CRIU 4.0 is needed"}},
		"kernel": {"runc version 1.5.2", good + "[ $1 != check ] || { echo 'no kcmp' >&2; exit 1; }\n", "criu",
			oci.Checkpoints{NoPods: "gVisor", NoContainers: "no kcmp"}},
		"crun":  {"crun version 1.21", good, "criu", oci.Checkpoints{NoPods: "gVisor", NoContainers: "runc"}},
		"runsc": {"runsc version 1", good, "criu", oci.Checkpoints{Pods: true, NoContainers: "CheckpointPod"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if test.criu != "" {
				if err := os.WriteFile(filepath.Join(dir, "criu"), []byte(test.criu), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			r := New(Config{Name: "a", CRIU: test.config, SearchPath: []string{dir}})
			got := r.probeCheckpoints(t.Context(), test.runtime)
			if got.Pods != test.want.Pods || got.Containers != test.want.Containers ||
				!says(got.NoPods, test.want.NoPods) || !says(got.NoContainers, test.want.NoContainers) {
				t.Errorf("checkpoints = %+v, want %+v", got, test.want)
			}
		})
	}
}

// says reports whether text contains words, and is empty if they are.
func says(text, words string) bool {
	return strings.Contains(text, words) && (words != "" || text == "")
}

// TestRealCRIU: CRIU of contrib/criu.sh works with the kernel of this machine.
func TestRealCRIU(t *testing.T) {
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	r := New(Config{Name: "runc", CRIU: "criu", SearchPath: []string{bin}})
	began := time.Now()
	if got := r.probeCheckpoints(t.Context(), "runc version 1.5.2"); !got.Containers {
		t.Errorf("checkpoints = %+v, want those of containers: run contrib/criu.sh", got)
	}
	t.Logf("the probe took %v", time.Since(began))
}
