package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/oci/program"
	"github.com/podd-project/podd/oci/shim"
)

// TestStdioIsInstalledForShims: the largest of the embedded programs is unpacked only on nodes that have a shim.
func TestStdioIsInstalledForShims(t *testing.T) {
	if _, err := shim.InstallStdio(t.TempDir()); errors.Is(err, program.ErrNotBuilt) {
		t.Skip(err)
	}
	for _, c := range []struct {
		kind string
		want error
	}{{"", fs.ErrNotExist}, {settings.TypeShim, nil}} {
		log, _ := test.NewNullLogger()
		d := &daemon{cfg: settings.Default(), log: log}
		dir := t.TempDir()
		d.cfg.Root, d.cfg.Run = filepath.Join(dir, "root"), filepath.Join(dir, "run")
		d.cfg.Runtime.Handlers["other"] = settings.HandlerTable{Type: c.kind, Path: "/no/such/program"}
		ctx, cancel := context.WithCancel(t.Context())
		d.handlers(ctx)
		cancel()
		d.background.Wait()
		if _, err := os.Stat(filepath.Join(dir, "root", "libexec", "stdio")); !errors.Is(err, c.want) {
			t.Errorf("with another handler of type %q: stdio program = %v, want %v", c.kind, err, c.want)
		}
	}
}
