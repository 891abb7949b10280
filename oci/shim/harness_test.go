package shim_test

import (
	"path/filepath"
	"testing"

	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/oci/shim"
)

// machine is a handler of type shim on the real machine.
type machine struct {
	*ocitest.Machine
	cfg shim.Config
}

// newMachine makes a handler with the shim and the runtime of these names, in directories of its own.
func newMachine(t testing.TB, shimName, runtime string) *machine {
	t.Helper()
	m := &machine{Machine: ocitest.Real(t, runtime)}
	dir := filepath.Dir(m.Config.RunDir)
	keeper, err := shim.InstallKeeper(filepath.Join(dir, "lib"))
	if err != nil {
		t.Fatal(err)
	}
	m.cfg = shim.Config{
		Name: "shim", Path: ocitest.Binary(t, shimName), Runtime: ocitest.Binary(t, runtime), Keeper: keeper,
		Root: filepath.Join(dir, "h"), RunDir: m.Config.RunDir,
	}
	m.New = func() ocitest.Runtime { return m.open(t) }
	return m
}

// open returns the handler as a daemon that has just started makes it.
func (m *machine) open(t testing.TB) *shim.Runtime {
	r := shim.New(m.cfg)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

func TestRuncShim(t *testing.T) {
	ocitest.Suite(t, func(t *testing.T) *ocitest.Harness {
		return &newMachine(t, "containerd-shim-runc-v2", "runc").Harness
	})
}
