package integration

import (
	"context"
	"encoding/json"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// TestCadvisorSocket: podd describes its containers to cAdvisor if, and only if, the socket is configured. A pod then
// has an infra container, whose network cAdvisor measures. test/k8s has the kubelet's cAdvisor ask.
func TestCadvisorSocket(t *testing.T) {
	t.Parallel()
	k := start(t)
	socket := k.Path("run", "crio", "crio.sock")
	if _, err := os.Lstat(k.Path("run", "crio")); err == nil {
		t.Errorf("%s exists although cadvisor.socket is not set", k.Path("run", "crio"))
	}
	k.Use(poddBinary, "--set", "cadvisor.socket="+socket)
	k.ok("restart podd", k.Restart(k.ctx(), k.Stop))
	if info, err := os.Lstat(socket); err != nil || info.Mode().Perm() != 0o660 || info.Mode().Type() != fs.ModeSocket {
		t.Fatalf("socket: %v, %v, want one of mode 0660", info, err)
	}
	pod, cfg := k.pod()
	ctr, _ := k.runIn(pod, cfg, []string{"sleep", "1000"})
	for id, name := range map[string]string{ctr: k.container(ctr).Metadata.Name, pod: "POD"} {
		got := askCrio(k, socket, id)
		if got.Labels["io.kubernetes.pod.name"] != cfg.Metadata.Name || got.Labels["io.kubernetes.container.name"] != name ||
			got.Pid == 0 || got.Image == "" {
			t.Errorf("%s = %+v, want container %s of pod %s", id, got, name, cfg.Metadata.Name)
		}
	}
	if got := askCrio(k, socket, ctr); got.Pid != initPid(k, ctr) || got.Image != busybox {
		t.Errorf("container = %+v, want pid %d and image %s", got, initPid(k, ctr), busybox)
	}
	k.exec(ctr, "echo written >/file")
	written, err := os.ReadFile(filepath.Join(askCrio(k, socket, ctr).Root, "diff", "file"))
	if err != nil || string(written) != "written\n" {
		t.Errorf("the file in the directory that cAdvisor measures = %q, %v, want what the container wrote", written, err)
	}
	if _, err := os.Stat(filepath.Join(askCrio(k, socket, pod).Root, "diff")); err != nil {
		t.Errorf("the directory that cAdvisor measures for the infra container: %v", err)
	}
	k.ok("stop podd", k.Stop())
	if _, err := os.Lstat(socket); err == nil {
		t.Error("the socket is still there after podd's stop")
	}
	k.Use(poddBinary)
	k.ok("start podd", k.Start(k.ctx()))
}

// crioContainer is the part of the answer that the test reads.
type crioContainer struct {
	Pid    int
	Image  string
	Root   string
	Labels map[string]string
}

func askCrio(k *kubelet, socket, id string) (c crioContainer) {
	k.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(k.ctx(), http.MethodGet, "http://podd/containers/"+id, nil)
	k.ok("make a request", err)
	resp, err := (&http.Client{Transport: transport}).Do(r)
	k.ok("ask about a container", err)
	defer resp.Body.Close()
	k.ok("decode the answer", json.NewDecoder(resp.Body).Decode(&c))
	return c
}
