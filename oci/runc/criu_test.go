package runc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
)

// TestProbeCheckpoints: what a handler can checkpoint, and why not.
func TestProbeCheckpoints(t *testing.T) {
	const good = "#!/bin/sh\necho Version: 4.2.1\n"
	for name, test := range map[string]struct {
		runtime, criu string // criu is a script, "" for none
		config        string
		want          oci.Checkpoints // reasons are parts of them
	}{
		"good": {"runc version 1.5.2", good, "criu", oci.Checkpoints{Pods: true, Containers: true}},
		"none": {"runc version 1.5.2", "", "criu", oci.Checkpoints{NoPods: "no criu in", NoContainers: "no criu in"}},
		"off":  {"runc version 1.5.2", good, "", oci.Checkpoints{NoPods: "runtime.criu", NoContainers: "runtime.criu"}},
		"old": {"runc version 1.5.2", "#!/bin/sh\necho Version: 4.2\n", "criu",
			oci.Checkpoints{NoPods: "CRIU 4.2.1 is needed", NoContainers: "CRIU 4.2.1 is needed"}},
		"kernel": {"runc version 1.5.2", good + "[ $1 != check ] || { echo 'no kcmp' >&2; exit 1; }\n", "criu",
			oci.Checkpoints{NoPods: "no kcmp", NoContainers: "no kcmp"}},
		"crun":  {"crun version 1.21", good, "criu", oci.Checkpoints{NoPods: "runc or gVisor", NoContainers: "runc"}},
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

// TestDumpError: the reasons are taken from the log of CRIU, bounded and quoted, because the container chose a part.
func TestDumpError(t *testing.T) {
	log := "(00.1) Warn  (criu/a.c:1): no\n(00.2) Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self\n" +
		"(00.3) Error (criu/sk-unix.c:1): unix: Dangling connection \x1b[31m" + strings.Repeat("x", 5000) + "\n"
	err := dumpError(t.Context(), log, []byte("criu failed"), errors.New("exit status 1"))
	if text := err.Error(); !errdefs.IsFailedPrecondition(err) || !strings.Contains(text, "Dangling connection") ||
		strings.Contains(text, "RLIMIT") || strings.Contains(text, "\x1b") || len(text) > 2000 {
		t.Errorf("error = %v, want %v with one bounded line", err, errdefs.ErrFailedPrecondition)
	}
	err = dumpError(t.Context(), "Error (criu/a.c:1): write: No space left on device", nil, errors.New("exit status 1"))
	if !errdefs.IsResourceExhausted(err) {
		t.Errorf("error = %v, want %v", err, errdefs.ErrResourceExhausted)
	}
	if err := dumpError(t.Context(), "", []byte("no such container"), errors.New("exit")); !says(err.Error(), "no such") {
		t.Errorf("error = %v, want what the runtime has printed", err)
	}
}

// TestCRIUOptions: without the annotation CRIU would use the options of the node.
func TestCRIUOptions(t *testing.T) {
	b := bundle{driver.Bundle(filepath.Join(t.TempDir(), "c"))}
	spec := New(Config{}).configureCRIU(b, &specs.Spec{})
	if got := spec.Annotations["org.criu.config"]; got != b.File("criu.conf") {
		t.Errorf("annotation = %q, want a file in the bundle", got)
	}
}

// TestSlowCRIU: when CRIU has no time to answer the first probe, because the machine boots, it is asked again.
func TestSlowCRIU(t *testing.T) {
	dir := t.TempDir()
	slow := filepath.Join(dir, "slow")
	for name, script := range map[string]string{
		"runc": "echo runc version 1.5.2", "conmon": "echo conmon version 2.1.12",
		"criu": "[ ! -e " + slow + " ] || sleep 100\necho Version: 4.2.1",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(slow, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := New(Config{Name: "a", Path: "runc", Conmon: "conmon", CRIU: "criu", SearchPath: []string{dir}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := r.Probe(ctx); err != nil || r.Features().Checkpoints.Pods {
		t.Fatalf("Probe = %v, checkpoints %+v, want success without them", err, r.Features().Checkpoints)
	}
	if err := os.Remove(slow); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); !r.Features().Checkpoints.Pods; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("checkpoints = %+v, want those of pods", r.Features().Checkpoints)
		}
	}
}
