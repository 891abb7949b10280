package workloads

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
	"github.com/podd-project/podd/test/leak"
)

// handlers are one of each kind: two OCI runtimes under conmon, gVisor by its shim, and virtual machines.
var handlers = []string{"runc", "crun", "gvisor-shim", "vm"}

// TestWorkloads has one subtest for each cell of the matrix: program and handler. With MATRIX set to a file it writes
// the results of a program's cells that ran into the file, when they have.
func TestWorkloads(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("the workloads are containers and need root")
	}
	for _, p := range programs() {
		t.Run(p.name, func(t *testing.T) {
			results := matrix{}
			t.Cleanup(func() { results.write(t, os.Getenv("MATRIX")) })
			d := start(t, p)
			for _, h := range handlers {
				t.Run(h, func(t *testing.T) {
					began := time.Now()
					t.Cleanup(func() { results[cellName(p.name, h)] = result(t, p.cannot[h], time.Since(began)) })
					if why := p.cannot[h]; why != "" {
						t.Skip(why)
					}
					c := &cell{TB: t, Daemon: d, program: p, handler: h}
					t.Cleanup(func() { c.removePod() })
					c.check()
				})
			}
		})
	}
}

// start runs a podd that has pulled the image of the program, until the test ends.
func start(t *testing.T, p program) *daemon.Daemon {
	t.Helper()
	d, err := daemon.New(daemon.Options{Binary: os.Getenv("PODD_BINARY"), Registry: serveImage(t, p)})
	must(t, err)
	leak.Check(t, d.Leak())
	t.Cleanup(func() {
		for _, a := range d.Alarms() {
			t.Errorf("podd's log has a data race or panic, want none:\n%s", a)
		}
		if t.Failed() {
			t.Logf("errors and warnings of podd:\n%s", d.LogProblems(60))
		}
		end := d.Close
		if leak.Kept(t) {
			t.Logf("kept %s; start podd again: %s", d.Dir, d.Command())
			end = d.Keep
		}
		if err := end(); err != nil {
			t.Errorf("close podd: %v", err)
		}
	})
	must(t, d.Start(t.Context()))
	_, err = d.Images.PullImage(t.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: imageName(p.name)}})
	must(t, err)
	return d
}

// removePod removes the pod and its volume.
func (c *cell) removePod() {
	if leak.Kept(c) {
		return
	}
	ctx := context.WithoutCancel(c.Context())
	if !c.Running() {
		must(c, c.Start(ctx))
	}
	if err := c.RemovePods(ctx); err != nil {
		c.Errorf("remove the pod: %v", err)
	}
	if err := os.RemoveAll(c.volume()); err != nil {
		c.Errorf("remove the volume: %v", err)
	}
}

// matrix has the results by cellName.
type matrix map[string]string

func cellName(program, handler string) string { return fmt.Sprintf("%-10s  %-11s", program, handler) }

// result says how the test of a cell ended.
func result(t *testing.T, cannot string, took time.Duration) string {
	switch {
	case t.Failed():
		return "failed"
	case cannot != "":
		return "cannot: " + cannot
	default:
		return fmt.Sprintf("ok %.0f s", took.Seconds())
	}
}

// write puts the results into the file, in which those of cells that did not run stay.
func (m matrix) write(t *testing.T, file string) {
	if file == "" {
		return
	}
	const header = "# Written by make test-workloads: program, handler, result.\n"
	old, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
		return
	}
	all := matrix{}
	for line := range strings.Lines(strings.TrimPrefix(string(old), header)) {
		name := cellName("", "")
		if len(line) > len(name) {
			all[line[:len(name)]] = strings.TrimSpace(line[len(name):])
		}
	}
	maps.Copy(all, m)
	text := header
	for _, name := range slices.Sorted(maps.Keys(all)) {
		text += name + "  " + all[name] + "\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Error(err)
	}
}
