package simulate

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// bite is a bug of podd: old is replaced by new in a file, where bug() says that it is played. Most were real, in podd
// or in a peer.
type bite struct{ name, file, old, new string }

var catalogue = []bite{
	{"ready without files", "sandbox/pod_loss.go", "len(files) > 0 {", "len(files) > 0 && !bug() {"},
	{"ready after a stop", "sandbox/pod_stop.go", "err = errors.Join(err, e.files.Spoil(p.ID))",
		"if !bug() { err = errors.Join(err, e.files.Spoil(p.ID)) }"},
	{"exit not synced after restart", "sandbox/load.go", "if err := record.SyncStatus(e.deps.Records, dir, s);",
		"if bug() {} else if err := record.SyncStatus(e.deps.Records, dir, s);"},
	{"no event of a pod found dead", "sandbox/recover.go", "p.lose(ctx, reason)",
		"if bug() { p.markNotReady(reason) } else { p.lose(ctx, reason) }"},
	{"no event of an exit", "sandbox/container.go", "c.post(lifecycle.Stopped)",
		"if !bug() { c.post(lifecycle.Stopped) }"},
	{"no event of a start", "sandbox/container.go", "c.post(lifecycle.Started)",
		"if !bug() { c.post(lifecycle.Started) }"},
	{"no event of a stop", "sandbox/pod_stop.go", "p.post(lifecycle.Stopped)",
		"if !bug() { p.post(lifecycle.Stopped) }"},
	{"no event of a removed pod", "sandbox/pod_remove.go", "p.post(lifecycle.Deleted)",
		"if !bug() { p.post(lifecycle.Deleted) }"},
	{"no event of a removed container", "sandbox/container_remove.go", "c.post(lifecycle.Deleted)",
		"if !bug() { c.post(lifecycle.Deleted) }"},
	{"no event of a dead infra container", "sandbox/pod_infra.go", "p.lose(p.life.Context(), infraDied)",
		"if bug() { p.markNotReady(infraDied) } else { p.lose(p.life.Context(), infraDied) }"},
	{"events out of order", "sandbox/pod_run.go", "p.post(lifecycle.Created)\n\t\t\tp.post(lifecycle.Started)",
		"if bug() { p.post(lifecycle.Started) }; p.post(lifecycle.Created); if !bug() { p.post(lifecycle.Started) }"},
	{"exit not synced", "sandbox/record/reboot.go", "return s.State == ContainerExited",
		"return s.State == ContainerExited && !bug()"},
	{"exit deleted before it is recorded", "sandbox/container_watch.go",
		"keeping its runtime state\")\n\t\treturn", "keeping its runtime state\"); if !bug() { return }"},
	{"OOM not reported", "sandbox/container_watch.go", "case x.OOM && x.Code != 0:",
		"case x.OOM && x.Code != 0 && !bug():"},
	{"failed wait is an exit", "sandbox/container_watch.go", "case err == nil:", "case err == nil || bug():"},
	{"exit code 0", "sandbox/container_watch.go", "s.FinishedAt, s.ExitCode = x.At, x.Code",
		"s.FinishedAt, s.ExitCode = x.At, x.Code; if bug() { s.ExitCode = 0 }"},
	{"failed creation not undone", "sandbox/pod_run.go", "return e.deletePod(ctx, p) })\n\tif err == nil",
		"if bug() { return nil }; return e.deletePod(ctx, p) })\n\tif err == nil"},
	{"address leaked", "sandbox/pod_stop.go", "err := e.deps.Network.Teardown(ctx, p.ID)",
		"var err error; if !bug() { err = e.deps.Network.Teardown(ctx, p.ID) }"},
	{"namespaces leaked", "sandbox/pod_stop.go", "if err := e.deps.Namespaces.Unpin(",
		"if bug() {} else if err := e.deps.Namespaces.Unpin("},
	{"root filesystem leaked", "sandbox/container_remove.go", "if err := e.deps.Images.Release(",
		"if bug() {} else if err := e.deps.Images.Release("},
	{"shm leaked", "sandbox/files/files.go", "return errors.Join(f.Mounter.Unmount(ctx, f.shm(pod)), ",
		"if bug() { return f.Mounter.Unmount(ctx, f.Layout.PodEtc(pod)) }\n" +
			"return errors.Join(f.Mounter.Unmount(ctx, f.shm(pod)), "},
	{"infra container leaked", "sandbox/pod_stop.go", "infra := e.deleteInfra(ctx, p)",
		"var infra error; if !bug() { infra = e.deleteInfra(ctx, p) }"},
	{"unfinished pod kept", "sandbox/reconcile.go", "return podDiscard",
		"if bug() { return podKeep }; return podDiscard"},
	{"ready after a reboot", "sandbox/reconcile.go", "\t}\n\treturn podNotReady",
		"\t}\n\tif bug() { return podKeep }; return podNotReady"},
	{"containers not watched after a restart", "sandbox/reconcile.go", "\t}\n\treturn containerWatch",
		"\t}\n\tif bug() { return containerKeep }; return containerWatch"},
	{"unclaimed pod kept", "sandbox/lifecycle/creation.go", "return c.waiting == 0 &&",
		"return c.waiting == 0 && !bug() &&"},
	{"name reserved", "sandbox/lifecycle/table.go", "delete(t.byID, t.entry(o).ID)\n\tt.freeNameLocked(o)",
		"delete(t.byID, t.entry(o).ID); if !bug() { t.freeNameLocked(o) }"},
	{"stopped pod is returned", "sandbox/pod_run.go",
		"(state == record.PodCreating || state == record.PodReady)",
		"(bug() || state == record.PodCreating || state == record.PodReady)"},
	{"containers not stopped", "sandbox/container_stop.go", "errs <- e.stopContainer(ctx, c, 0)",
		"if bug() { errs <- nil; return }; errs <- e.stopContainer(ctx, c, 0)"},
	{"ready before it is on disk", "sandbox/pod.go", "return p.update(to, change, true)",
		"if bug() { _ = p.update(to, change, false); return nil }; return p.update(to, change, true)"},
	{"created before it is on disk", "sandbox/container.go", "return c.update(to, change, true)",
		"if bug() { _ = c.update(to, change, false); return nil }; return c.update(to, change, true)"},
	{"answer before the record", "sandbox/record/create.go", "<-s.done\n\treturn s.err",
		"if bug() { return nil }; <-s.done; return s.err"},
	{"container created in a stopping pod", "sandbox/container_create.go",
		"s.State != record.PodReady || !p.gate.Enter()",
		"!bug() && s.State != record.PodReady || !p.gate.Enter() && !bug()"},
	{"failed stop not repeated", "sandbox/pod_stop.go", "p.tornDown = err == nil", "p.tornDown = err == nil || bug()"},
	{"not listed after a restart", "sandbox/load.go", "\t\tp.creation.Adopt()\n",
		"if bug() { p.creation.Finish(nil) } else { p.creation.Adopt() }\n"},
	{"process leaked", "sandbox/container_remove.go",
		"if err := e.deleteProcess(ctx, c.pod, c.ID, c.Status().Process); err",
		"if bug() {} else if err := e.deleteProcess(ctx, c.pod, c.ID, c.Status().Process); err"},
	{"stale state in lists", "server/convert_pod.go", "item.State = podState(p.Status.State)",
		"if !bug() || fixed == nil { item.State = podState(p.Status.State) }"},
	{"failed stop answered as done", "server/absent.go", "\t}\n\treturn err\n}\n\nfunc unlessNotFound",
		"}; if bug() { return nil }; return err }\n\nfunc unlessNotFound"},
	{"stop answers before the exit", "sandbox/container_stop.go", "\t\tc.kill.Finish(attempt, errClosing)\n\t}\n",
		"c.kill.Finish(attempt, errClosing) }; if bug() && grace > 0 { return nil }\n"},
	{"removal answers before its end", "server/container_remove.go", "if err := s.onContainer(",
		"if bug() { go s.onContainer(context.WithoutCancel(ctx), r.GetContainerId(), s.deps.Engine.RemoveContainer)\n" +
			"} else if err := s.onContainer("},
	{"start answers before its end", "server/container_start.go", "if err := s.deps.Engine.StartContainer(",
		"if bug() { go s.deps.Engine.StartContainer(context.WithoutCancel(ctx), r.GetContainerId())\n" +
			"} else if err := s.deps.Engine.StartContainer("},
	{"retry makes a second pod", "sandbox/lifecycle/table.go", "if other, ok := t.byName[entry.Name]; ok {",
		"if other, ok := t.byName[entry.Name]; ok && !bug() {"},
}

// bugFunc is added to each package of the catalogue. bug gets the name of the bite as it is inserted.
const bugFunc = `package %s

import "os"

var played = os.Getenv(%q)

func bug(b string) bool { return b == played }
`

const bugEnv = "SIMULATED_BUG"

var found = regexp.MustCompile(`seed (\d+) \(go test`)

// TestBites plays each bug of the catalogue until a seed finds it.
func TestBites(t *testing.T) {
	if *bites == "" {
		t.Skip("-bites is not set")
	}
	program := build(t)
	for _, b := range catalogue {
		if *bites != "all" && !slices.Contains(strings.Split(*bites, ","), b.name) {
			continue
		}
		began := time.Now()
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestSimulate$", "-test.timeout=1h", "-stop",
			fmt.Sprint("-seed=", *first), fmt.Sprint("-seeds=", *seeds))
		cmd.Env = append(os.Environ(), bugEnv+"="+b.name)
		data, _ := cmd.CombinedOutput() // it fails, if it is as it should be
		out := string(data)
		seed := found.FindStringSubmatch(out)
		if seed == nil {
			t.Errorf("| %s | not in %d | %.0f s: %.300s", b.name, *seeds, time.Since(began).Seconds(), out)
			continue
		}
		_, rule, _ := strings.Cut(out, "-log):\n")
		rule, _, _ = strings.Cut(strings.TrimSpace(rule), " (at")
		t.Logf("| %s | %s | %.0f s: %s", b.name, seed[1], time.Since(began).Seconds(), rule)
	}
}

// TestCatalogueFitsTheCode: each bug of the catalogue changes one place of today's code.
func TestCatalogueFitsTheCode(t *testing.T) { mutate(t) }

// mutate returns the files of podd with all bugs, of which one is chosen by the environment, by path.
func mutate(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, b := range catalogue {
		path, err := filepath.Abs(filepath.Join("../..", b.file))
		if err != nil {
			t.Fatal(err)
		}
		if texts[path] == "" {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Dir(path)
			texts[path] = string(data)
			texts[filepath.Join(dir, "bug.go")] = fmt.Sprintf(bugFunc, filepath.Base(dir), bugEnv)
		}
		if n := strings.Count(texts[path], b.old); n != 1 {
			t.Fatalf("%s: %d places in %s, want 1: %q", b.name, n, b.file, b.old)
		}
		changed := strings.ReplaceAll(b.new, "bug()", fmt.Sprintf("bug(%q)", b.name))
		texts[path] = strings.Replace(texts[path], b.old, changed, 1)
	}
	return texts
}

// build returns this test, built with all bugs: one build serves for all.
func build(t *testing.T) string {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	replace := map[string]string{}
	for path, text := range mutate(t) {
		replace[path] = write(fmt.Sprint(len(replace), ".go"), []byte(text))
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "program")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", write("overlay.json", data),
		"-o", program, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}
