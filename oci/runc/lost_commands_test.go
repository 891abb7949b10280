package runc

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/process"
)

// TestRemoveLostCommands: the files of another podd's commands are removed, but not those of this one, nor in a bundle
// of another driver: its commands may be this podd's. The shim of gVisor writes a state.json there, which is not a
// record.
func TestRemoveLostCommands(t *testing.T) {
	r := New(Config{Name: "runc", RunDir: t.TempDir(), Root: t.TempDir()})
	var want []string
	for _, id := range []string{"ours", "shim"} {
		b, err := r.bundle(id)
		if err != nil {
			t.Fatal(err)
		}
		lost := filepath.Join(b.Dir(), "exec-1234")
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		must(os.MkdirAll(lost, 0o700))
		must(os.WriteFile(lost+".json", nil, 0o600))
		own, err := writeProcess(t.Context(), b.Dir(), &specs.Process{})
		must(err)
		want = append(want, own.process)
		if id == "ours" {
			must(b.save(record{Monitor: process.Process{Pid: 1, Start: 1}}))
			want = append(want, b.record())
		} else {
			must(os.WriteFile(b.record(), []byte(`{"Rootfs": "/", "Options": {}}`), 0o600))
			want = append(want, b.record(), lost, lost+".json")
		}
	}
	if err := r.RemoveLostCommands(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(r.cfg.RunDir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if !slices.Equal(left, want) {
		t.Errorf("files left = %q, want %q", left, want)
	}
}
