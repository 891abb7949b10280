package integration

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/remotecommand"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
)

// TestIncidents plays what goes wrong on nodes. For each incident the output of the one command that
// contrib/docs/trouble.md names has the cause. A full disk is in TestAdmin.
func TestIncidents(t *testing.T) {
	t.Parallel()
	policy := t.TempDir() + "/policy.json"
	err := os.WriteFile(policy, []byte(`{"default":[{"type":"insecureAcceptAnything"}],
		"transports":{"docker":{"`+nginx+`":[{"type":"reject"}]}}}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	k := startWith(t, daemon.Options{Gated: true, Set: []string{`image.policy="` + policy + `"`}})
	k.have(busybox)
	for _, c := range []struct {
		name string
		play func(*kubelet)
	}{
		{"image is not pulled", func(k *kubelet) {
			if _, err := k.tryPull(nginx, nil); err == nil {
				k.Error("PullImage: error = nil, want a rejected signature")
			}
			k.answers("signature policy: reject\n     "+policy, "image", "explain", nginx)
		}},
		{"pod does not end", incidentStuck},
		{"network is missing", incidentNoNetwork},
		{"PLEG is not healthy", incidentPLEG},
		{"container is killed for its memory", func(k *kubelet) {
			pod, cfg := k.pod()
			id, _ := k.runIn(pod, cfg, []string{"sh", "-c", "x=x; while true; do x=$x$x$x$x; done"},
				func(c *cri.ContainerConfig) { c.Linux.Resources.MemoryLimitInBytes = 64 << 20 })
			k.exited(id)
			k.answers("exited: OOMKilled, exit code 137", "status", pod)
			r, err := k.Runtime.Status(k.ctx(), &cri.StatusRequest{Verbose: true})
			if k.ok("Status", err); !strings.Contains(r.GetInfo()["problems"], pod) {
				k.Errorf("problems in crictl info = %s, want one of pod %s", r.GetInfo()["problems"], pod)
			}
		}},
		{"exec hangs", incidentExec},
		{"port-forward hangs", func(k *kubelet) {
			pod, _ := k.echoPod()
			k.ok("forward", k.forward(0, pod, func(string) error {
				k.eventually("the session is listed", func() bool {
					out, _, _ := k.podd("status")
					return strings.Contains(out, "portforward  "+pod[:13])
				})
				return nil
			}))
		}},
		{"start was slow", incidentSlow},
		{"something is left", func(k *kubelet) {
			id := strings.Repeat("cd", 32)
			k.ok("create a bundle", os.Mkdir(k.Path("run", "containers", id), 0o700))
			if out, _, code := k.podd("check"); code != 1 || !strings.Contains(out, id[:12]) {
				k.Errorf("check: exit status %d, want 1 and %.12s:\n%s", code, id, out)
			}
			k.runs("check", "--repair")
		}},
	} {
		t.Run(c.name, func(t *testing.T) { c.play(k.sub(t)) })
	}
}

// answers runs a command, whose output must contain cause.
func (k *kubelet) answers(cause string, args ...string) {
	k.Helper()
	if out := k.runs(args...); !strings.Contains(out, cause) {
		k.Errorf("podd %v, want %q:\n%s", args, cause, out)
	}
}

// incidentStuck: a CNI plugin hangs in DEL.
func incidentStuck(k *kubelet) {
	pod, cfg := k.pod()
	k.ok("hold", k.Gates.Hold("bridge-DEL", "K8S_POD_NAME="+cfg.Metadata.Name+";"))
	stopped := make(chan error, 1)
	go func() {
		_, err := k.Runtime.StopPodSandbox(k.ctx(), &cri.StopPodSandboxRequest{PodSandboxId: pod})
		stopped <- err
	}()
	k.eventually("the plugin hangs", func() bool { return k.Gates.Holds("bridge-DEL") })
	out := k.runs("status")
	_, operations, _ := strings.Cut(out, "Operations in progress: 1\n")
	line, _, _ := strings.Cut(operations, "\n")
	for _, want := range []string{"StopPodSandbox", pod[:13], cfg.Metadata.Name, "network"} {
		if !strings.Contains(line, want) {
			k.Errorf("operation %q, want %s in it:\n%s", line, want, out)
		}
	}
	k.ok("release", k.Gates.Release("bridge-DEL"))
	k.ok("StopPodSandbox", <-stopped)
}

// incidentNoNetwork: there is no CNI configuration.
func incidentNoNetwork(k *kubelet) {
	file := k.Path("net.d", "10-test.conflist")
	k.ok("hide the conf list", os.Rename(file, k.Path("hidden")))
	network := func(want string) func() bool {
		return func() bool {
			out, _, _ := k.podd("status")
			return strings.Contains(out, want)
		}
	}
	k.eventually("podd status names the directory", network("NetworkReady: false"))
	k.answers(k.Path("net.d"), "status")
	k.ok("restore the conf list", os.Rename(k.Path("hidden"), file))
	k.eventually("the network is ready", network("NetworkReady: true"))
}

// incidentPLEG: the metrics say how long podd took for the lists that the kubelet asks for.
func incidentPLEG(k *kubelet) {
	k.pods(nil)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(
		ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", k.Path("run", "metrics.sock"))
	}}}
	r, err := client.Get("http://podd/metrics")
	k.ok("read the metrics", err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	k.ok("read the metrics", err)
	if want := `podd_rpc_duration_seconds_sum{code="OK",method="ListPodSandbox"}`; !strings.Contains(string(text), want) {
		k.Errorf("metrics have no %s", want)
	}
}

// incidentExec: the command of an exec session does not end.
func incidentExec(k *kubelet) {
	_, container := k.sleeper()
	in, write := io.Pipe()
	at, done := k.execURL(container, false, "cat"), make(chan error, 1)
	go func() {
		done <- k.streamTo(0, at, remotecommand.StreamOptions{Stdin: in, Stdout: io.Discard, Stderr: io.Discard})
	}()
	k.eventually("the session is listed", func() bool {
		out, _, _ := k.podd("status")
		return strings.Contains(out, "exec  "+container[:13])
	})
	k.ok("end the input", write.Close())
	k.ok("exec", <-done)
}

// incidentSlow: a CNI plugin took long to start a pod that is gone.
func incidentSlow(k *kubelet) {
	cfg := k.podConfig()
	k.ok("make the pod's log directory", os.MkdirAll(cfg.LogDirectory, 0o755))
	k.ok("hold", k.Gates.Hold("bridge-ADD", "K8S_POD_NAME="+cfg.Metadata.Name+";"))
	made := make(chan string, 1)
	go func() {
		r, err := k.Runtime.RunPodSandbox(k.ctx(), &cri.RunPodSandboxRequest{Config: cfg})
		if err != nil {
			k.Error(err)
		}
		made <- r.GetPodSandboxId()
	}()
	k.eventually("the plugin hangs", func() bool { return k.Gates.Holds("bridge-ADD") })
	time.Sleep(time.Second)
	k.ok("release", k.Gates.Release("bridge-ADD"))
	k.removePod(<-made)
	k.eventually("the operation is written", func() bool {
		out, _, _ := k.podd("history", "--slower", "1s", "--stages", cfg.Metadata.Name)
		_, stage, _ := strings.Cut(out, "  network ")
		line, _, _ := strings.Cut(stage, "\n")
		return strings.Contains(out, "RunPodSandbox") && strings.Count(line, "#") > 20
	})
}
