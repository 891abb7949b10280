package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/remotecommand"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// reloadCallers is the number of callers while the configuration is reloaded.
const reloadCallers = 8

// TestReload reloads the configuration many times, each fifth time a broken one, while callers run pods. No call fails,
// a new handler can be used at once, a broken file changes nothing, and an exec session goes on.
func TestReload(t *testing.T) {
	t.Parallel()
	k := start(t)
	k.ok("make a directory", os.MkdirAll(k.Path("podd.toml.d"), 0o755))
	_, old := k.sleeper()
	in, write := io.Pipe()
	at, session := k.execURL(old, false, "cat"), make(chan error, 1)
	var out strings.Builder
	go func() {
		session <- k.executor(0, at).StreamWithContext(k.ctx(),
			remotecommand.StreamOptions{Stdin: in, Stdout: &out, Stderr: io.Discard})
	}()
	ctx, cancel := context.WithCancel(k.ctx())
	var callers errgroup.Group
	defer func() { cancel(); _ = callers.Wait() }() // a failed test must not be cleaned up under them
	var lives atomic.Int64
	for range reloadCallers {
		cfg := k.podConfig()
		k.ok("make the pod's log directory", os.MkdirAll(cfg.LogDirectory, 0o755))
		callers.Go(func() error { return k.runLives(ctx, cfg, &lives) })
	}
	generation := 1
	for i := range soak(30, 100) {
		if i%5 == 4 {
			k.reloadBroken(i/5, generation)
			continue
		}
		generation++
		k.reloadGood(i, generation)
	}
	k.eventually("the callers have run pods meanwhile", func() bool { return lives.Load() >= 2*reloadCallers })
	cancel()
	k.ok("calls while the configuration is reloaded", callers.Wait())
	_, err := io.WriteString(write, "still there")
	k.ok("write to the exec session", err)
	k.ok("close the exec session's input", write.Close())
	k.ok("exec session", <-session)
	if out.String() != "still there" {
		t.Errorf("exec session printed %q, want \"still there\"", out.String())
	}
	k.exec(old, "true") // a pod of the first generation
	text, _, _ := k.podd("status", "-o", "json")
	if want := fmt.Sprintf(`"generation": %d,`, generation); !strings.Contains(text, want) {
		t.Errorf("status, want %s:\n%.500s", want, text)
	}
}

// runLives runs pods with a container, one after the other, until ctx ends. It returns the error of a call.
func (k *kubelet) runLives(ctx context.Context, cfg *cri.PodSandboxConfig, lives *atomic.Int64) error {
	for ctx.Err() == nil {
		p, err := k.Runtime.RunPodSandbox(k.ctx(), &cri.RunPodSandboxRequest{Config: cfg})
		if err != nil {
			return fmt.Errorf("RunPodSandbox: %w", err)
		}
		c, err := k.Runtime.CreateContainer(k.ctx(), &cri.CreateContainerRequest{
			PodSandboxId: p.PodSandboxId, Config: k.containerConfig([]string{"sleep", "1000"}), SandboxConfig: cfg})
		if err != nil {
			return fmt.Errorf("CreateContainer: %w", err)
		}
		_, err = k.Runtime.StartContainer(k.ctx(), &cri.StartContainerRequest{ContainerId: c.ContainerId})
		if err != nil {
			return fmt.Errorf("StartContainer: %w", err)
		}
		r, err := k.Runtime.ExecSync(k.ctx(), &cri.ExecSyncRequest{ContainerId: c.ContainerId, Cmd: []string{"true"}})
		if err != nil || r.ExitCode != 0 {
			return fmt.Errorf("ExecSync: exit code %d, %w", r.GetExitCode(), err)
		}
		_, err = k.Runtime.StopPodSandbox(k.ctx(), &cri.StopPodSandboxRequest{PodSandboxId: p.PodSandboxId})
		if err != nil {
			return fmt.Errorf("StopPodSandbox: %w", err)
		}
		_, err = k.Runtime.RemovePodSandbox(k.ctx(), &cri.RemovePodSandboxRequest{PodSandboxId: p.PodSandboxId})
		if err != nil {
			return fmt.Errorf("RemovePodSandbox: %w", err)
		}
		lives.Add(1)
	}
	return nil
}

// TestReloadReachesAllParts: the log, the network and the images follow the file, there and back. What TestReload runs
// shows it of the runtime.
func TestReloadReachesAllParts(t *testing.T) {
	t.Parallel()
	k := start(t)
	k.ok("make directories",
		errors.Join(os.MkdirAll(k.Path("podd.toml.d"), 0o755), os.Mkdir(k.Path("no-networks"), 0o755)))
	k.have(busybox)
	parts := func() string {
		s, err := k.Runtime.Status(k.ctx(), &cri.StatusRequest{})
		k.ok("Status", err)
		i := slices.IndexFunc(s.Status.Conditions, func(c *cri.RuntimeCondition) bool { return c.Type == cri.NetworkReady })
		return fmt.Sprintf("%s network=%t pinned=%t", strings.TrimSpace(k.admin("/v1/log-level")),
			s.Status.Conditions[i].Status, k.image(busybox).Pinned)
	}
	before := parts()
	for _, reload := range []struct{ text, want string }{
		{fmt.Sprintf("log.level = \"warning\"\nnetwork.conf_dir = %q\nimage.pinned_images = [%q]\n", k.Path("no-networks"),
			busybox), `{"level":"warning"} network=false pinned=true`},
		{"", before},
	} {
		k.writeReload(reload.text)
		if status, body := k.askAdmin(http.MethodPost, "/v1/reload"); status != http.StatusOK {
			t.Fatalf("reload of %q = %d %s, want 200", reload.text, status, body)
		}
		if got := parts(); got != reload.want {
			t.Errorf("after a reload of %q: %s, want %s", reload.text, got, reload.want)
		}
	}
	if want := `{"level":"debug"} network=true pinned=false`; before != want {
		t.Errorf("at the start: %s, want %s", before, want)
	}
}

// writeReload writes the drop-in that the reloads change.
func (k *kubelet) writeReload(text string) {
	k.Helper()
	k.ok("write a drop-in", os.WriteFile(k.Path("podd.toml.d", "60-reload.toml"), []byte(text), 0o644))
}

// reloadGood adds a handler, changes the default one and keys of network, limits and log, and removes the handler that
// the reload before has added. At times it runs a pod with the new handler at once.
func (k *kubelet) reloadGood(i, generation int) {
	k.Helper()
	handler := fmt.Sprintf("fresh-%d", i)
	k.writeReload(fmt.Sprintf(`log.level = %q
[runtime]
pids_limit = %d
create_timeout = "%ds"
[runtime.handlers.%s]
path = "runc"
[runtime.handlers.runc]
default_annotations = {"org.example.generation" = "%d"}
[network]
add_timeout = "%ds"
`, []string{"debug", "info"}[i%2], 1000+i, 100+i%3, handler, generation, 100+i))
	status, body := k.askAdmin(http.MethodPost, "/v1/reload")
	if want := fmt.Sprintf(`{"generation":%d,`, generation); status != http.StatusOK || !strings.HasPrefix(body, want) ||
		!strings.Contains(body, `"runtime.pids_limit"`) {
		k.Fatalf("reload %d = %d %s, want 200 %s", i, status, body, want)
	}
	if i%20 != 0 {
		return
	}
	cfg := k.podConfig()
	k.ok("make the pod's log directory", os.MkdirAll(cfg.LogDirectory, 0o755))
	pod := k.runPod(cfg, handler)
	container, _ := k.runIn(pod, cfg, []string{"sleep", "1000"})
	got, want := k.cgroupFile(container, "pids.max", "pids/pids.max"), fmt.Sprint(1000+i)
	if got != want {
		k.Errorf("pids.max = %q after reload %d, want %s", got, i, want)
	}
	k.removePod(pod)
}

// reloadBroken reloads a configuration that must be refused, and checks that nothing changes.
func (k *kubelet) reloadBroken(i, generation int) {
	k.Helper()
	bad := k.Path("bad-policy.json")
	k.ok("write a file", os.WriteFile(bad, []byte("{"), 0o644))
	broken := []struct{ text, want string }{
		{"[runtime\n", "60-reload.toml:1"},
		{"[runtime]\npids_limit = 7\npids_limlt = 8\n", "unknown key"},
		{"[runtime]\npids_limit = 7\ndefault_handler = \"absent\"\n", "unknown handler"},
		{"[runtime]\npids_limit = 7\n[streaming]\nport = 1\n", "only a restart can change streaming.port"},
		{"[runtime]\npids_limit = 7\n[image]\npolicy = \"" + bad + "\"\n", "bad-policy.json"},
		{"[runtime]\npids_limit = 7\n[runtime.handlers.runc]\nbase_runtime_spec = \"/nonexistent\"\n", "base_runtime_spec"},
	}[i%6]
	before := k.info("config")
	k.writeReload(broken.text)
	status, body := k.askAdmin(http.MethodPost, "/v1/reload")
	if status != http.StatusPreconditionFailed || !strings.Contains(body, broken.want) {
		k.Fatalf("reload of %q = %d %s, want 412 with %q", broken.text, status, body, broken.want)
	}
	if after := k.info("config"); after != before {
		k.Errorf("the configuration in force changed from %s to %s", before, after)
	}
	want := fmt.Sprintf(`"configuration":{"generation":%d,`, generation)
	if s := k.admin("/v1/status"); !strings.Contains(s, want) || !strings.Contains(s, `"error":"`) {
		k.Errorf("status = %.300s, want %s and an error", s, want)
	}
}

// info returns an entry of the verbose Status.
func (k *kubelet) info(key string) string {
	k.Helper()
	r, err := k.Runtime.Status(k.ctx(), &cri.StatusRequest{Verbose: true})
	k.ok("Status", err)
	return r.GetInfo()[key]
}
