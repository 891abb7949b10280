package simulate

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// bite is a bug of podd: old is replaced by new in a file. Most were real, in podd or in a peer.
type bite struct{ name, file, old, new string }

var catalogue = []bite{
	{"ready without files", "sandbox/pod_loss.go", "len(files) > 0 {", "len(files) > 0 && c0() {"},
	{"ready after a stop", "sandbox/pod_stop.go", "errors.Join(err, e.files.Spoil(p.ID))", "errors.Join(err)"},
	{"exit not synced after restart", "sandbox/load.go",
		"err := record.SyncStatus(e.deps.Records, dir, s)", "err := error(nil)"},
	{"no event of a pod found dead", "sandbox/recover.go", "p.lose(ctx, reason)", "p.markNotReady(reason)"},
	{"no event of an exit", "sandbox/container.go", "c.post(lifecycle.Stopped)", ""},
	{"no event of a start", "sandbox/container.go", "c.post(lifecycle.Started)", ""},
	{"no event of a stop", "sandbox/pod_stop.go", "p.post(lifecycle.Stopped)", "_ = lifecycle.Stopped"},
	{"no event of a removed pod", "sandbox/pod_remove.go", "p.post(lifecycle.Deleted)", "_ = lifecycle.Deleted"},
	{"no event of a removed container", "sandbox/container_remove.go", "c.post(lifecycle.Deleted)",
		"_ = lifecycle.Deleted"},
	{"no event of a dead infra container", "sandbox/pod_infra.go", "p.lose(p.life.Context(), infraDied)",
		"p.markNotReady(infraDied)"},
	{"events out of order", "sandbox/pod_run.go",
		"p.post(lifecycle.Created)\n\t\t\tp.post(lifecycle.Started)",
		"p.post(lifecycle.Started)\n\t\t\tp.post(lifecycle.Created)"},
	{"exit not synced", "sandbox/record/reboot.go", "return s.State == ContainerExited", "return false"},
	{"exit deleted before it is recorded", "sandbox/container_watch.go",
		"keeping its runtime state\")\n\t\treturn", "keeping its runtime state\")"},
	{"OOM not reported", "sandbox/container_watch.go", "case x.OOM && x.Code != 0:", "case c0() && x.OOM:"},
	{"failed wait is an exit", "sandbox/container_watch.go", "case err == nil:", "case err == nil || !c0():"},
	{"exit code 0", "sandbox/container_watch.go", "s.FinishedAt, s.ExitCode = x.At, x.Code", "s.FinishedAt = x.At"},
	{"failed creation not undone", "sandbox/pod_run.go", "return e.deletePod(ctx, p) })\n\tif err == nil",
		"return nil })\n\tif err == nil"},
	{"address leaked", "sandbox/pod_stop.go", "err := e.deps.Network.Teardown(ctx, p.ID)", "var err error"},
	{"namespaces leaked", "sandbox/pod_stop.go", "e.deps.Namespaces.Unpin(ctx, paths...)", "error(nil)"},
	{"root filesystem leaked", "sandbox/container_remove.go", "e.deps.Images.Release(ctx, c.ID)", "error(nil)"},
	{"shm leaked", "sandbox/files/files.go", "errors.Join(f.Mounter.Unmount(ctx, f.shm(pod)), ", "errors.Join("},
	{"infra container leaked", "sandbox/pod_stop.go", "infra := e.deleteInfra(ctx, p)", "infra := error(nil)"},
	{"unfinished pod kept", "sandbox/reconcile.go", "return podDiscard", "return podKeep"},
	{"ready after a reboot", "sandbox/reconcile.go", "\t}\n\treturn podNotReady", "\t}\n\treturn podKeep"},
	{"containers not watched after a restart", "sandbox/reconcile.go", "\t}\n\treturn containerWatch",
		"\t}\n\treturn containerKeep"},
	{"unclaimed pod kept", "sandbox/lifecycle/creation.go", "return c.waiting == 0 &&", "return c.waiting < 0 &&"},
	{"name reserved", "sandbox/lifecycle/table.go", "delete(t.byID, t.entry(o).ID)\n\tt.freeNameLocked(o)",
		"delete(t.byID, t.entry(o).ID)"},
	{"stopped pod is returned", "sandbox/pod_run.go",
		"(state == record.PodCreating || state == record.PodReady)", "state != \"\""},
	{"containers not stopped", "sandbox/container_stop.go",
		"errs <- e.stopContainer(ctx, c, 0)", "errs <- nil"},
	{"ready before it is on disk", "sandbox/pod.go", "return p.update(to, change, true)",
		"return p.update(to, change, false)"},
	{"created before it is on disk", "sandbox/container.go", "return c.update(to, change, true)",
		"return c.update(to, change, false)"},
	{"answer before the record", "sandbox/record/create.go", "return s.err", "return nil"},
	{"container created in a stopping pod", "sandbox/container_create.go", "|| !p.gate.Enter()", "&& !p.gate.Enter()"},
	{"failed stop not repeated", "sandbox/pod_stop.go", "p.tornDown = err == nil", "p.tornDown = true"},
	{"not listed after a restart", "sandbox/load.go", "\t\tp.creation.Adopt()\n", "\t\tp.creation.Finish(nil)\n"},
	{"process leaked", "sandbox/container_remove.go", "e.deleteProcess(ctx, c.pod, c.ID); err", "error(nil); err"},
	{"retry makes a second pod", "sandbox/lifecycle/table.go",
		"if other, ok := t.byName[entry.Name]; ok {", "if other, ok := t.byName[entry.Name]; ok && c0() {"},
}

// c0 is a false that compilers and linters do not see, for conditions of bites.
const c0 = "\nfunc c0() bool { return false }\n"

var found = regexp.MustCompile(`seed (\d+) \(go test`)

// TestBites plays each bug of the catalogue until a seed finds it.
func TestBites(t *testing.T) {
	if *bites == "" {
		t.Skip("-bites is not set")
	}
	for _, b := range catalogue {
		if *bites != "all" && *bites != b.name {
			continue
		}
		began := time.Now()
		out := b.play(t)
		seed := found.FindStringSubmatch(out)
		if seed == nil {
			t.Errorf("%s: not found by the seeds: %.300s", b.name, out)
			continue
		}
		_, rule, _ := strings.Cut(out, "-log):\n")
		rule, _, _ = strings.Cut(strings.TrimSpace(rule), " (at")
		t.Logf("| %s | %s | %s | %.0f s", b.name, seed[1], rule, time.Since(began).Seconds())
	}
}

// TestCatalogueFitsTheCode: each bug of the catalogue changes one place of today's code.
func TestCatalogueFitsTheCode(t *testing.T) {
	for _, b := range catalogue {
		b.read(t)
	}
}

// read returns the path and text of the file that b changes.
func (b bite) read(t *testing.T) (path, text string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../..", b.file))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), b.old); n != 1 {
		t.Fatalf("%s: %d places in %s, want 1: %q", b.name, n, b.file, b.old)
	}
	return path, string(data)
}

// play returns the output of the seeds with the bug in podd.
func (b bite) play(t *testing.T) string {
	path, text := b.read(t)
	changed := strings.Replace(text, b.old, b.new, 1)
	if strings.Contains(b.new, "c0()") {
		changed += c0
	}
	dir := t.TempDir()
	bad, overlay := filepath.Join(dir, "bad.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: bad}})
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string][]byte{bad: []byte(changed), overlay: replace} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-run", "^TestSimulate$", ".",
		"-seeds=100", "-stop")
	out, _ := cmd.CombinedOutput() // it fails, if it is as it should be
	return string(out)
}
