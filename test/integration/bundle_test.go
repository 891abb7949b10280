package integration

import (
	"archive/tar"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
)

// TestBundle plants secrets where users have them, and looks for them in the bundle of a running and of a killed podd.
func TestBundle(t *testing.T) {
	t.Parallel()
	const planted = "PlantedS3cretW0rd"
	k := startWith(t, daemon.Options{Set: []string{
		`runtime.default_env = ["MYSQL_PWD=` + planted + `", "PIN=4711"]`, `log.level = "debug"`,
	}})
	pod, cfg := k.pod()
	secret := func(c *cri.ContainerConfig) {
		c.Envs = []*cri.KeyValue{{Key: "DB_URL", Value: []byte(planted)}}
		c.Annotations = map[string]string{"example.org/login": planted}
	}
	container, _ := k.runIn(pod, cfg, []string{"sh", "-c", "sleep 1000 # " + planted}, secret)
	k.exec(container, "true # "+planted)
	_, err := k.tryPull("127.0.0.1:1/absent:v1", &cri.AuthConfig{Username: "joe", Password: planted,
		ServerAddress: "127.0.0.1:1"})
	if err == nil {
		k.Fatal("pulled from a registry that does not exist")
	}
	_, err = k.tryCreate(pod, k.containerConfig([]string{"absent-" + planted}, secret), cfg)
	k.ok("create a container that cannot start", err)

	files := k.bundle("running.tar.gz")
	for _, want := range []string{
		"version.txt", "config.toml", "node.txt", "history.json", "check.json", "goroutines.txt", "heap.pprof", "status.json",
		"operations.json", "budgets.json", "pulls.json", "sessions.json", "disk.json", "machine/kernel.txt",
	} {
		if files[want] == "" {
			k.Errorf("the bundle of a running podd has no %s: %s", want, files[want+".error"])
		}
	}
	for name, want := range map[string]string{
		"status.json": pod, "history.json": "RunPodSandbox", "config.toml": "MYSQL_PWD=[removed]", "goroutines.txt": "grpc",
	} {
		if !strings.Contains(files[name], want) {
			k.Errorf("%s has no %s: %.300s", name, want, files[name])
		}
	}
	k.noSecret(files, planted)

	k.ok("kill podd", k.Kill9())
	files = k.bundle("killed.tar.gz")
	if !strings.Contains(files["status.json.error"], "is podd running?") || !strings.Contains(files["history.json"], pod) {
		k.Errorf("bundle of a killed podd: status %q, history %.300s, want an error and the pod",
			files["status.json.error"], files["history.json"])
	}
	k.noSecret(files, planted)
	if _, errs, code := k.podd("bundle", k.Path("killed.tar.gz")); code != 1 || !strings.Contains(errs, "exists") {
		k.Errorf("bundle to a file that exists: exit status %d, %q, want 1", code, errs)
	}
	k.ok("start podd", k.Start(k.ctx()))
}

// bundle makes a bundle and returns its files, by their name below its directory.
func (k *kubelet) bundle(name string) map[string]string {
	k.Helper()
	k.runs("bundle", k.Path(name))
	info, err := os.Stat(k.Path(name))
	k.ok("stat the bundle", err)
	if info.Mode().Perm() != 0o600 || info.Size() > 10<<20 {
		k.Errorf("the bundle has mode %v and %d bytes, want 0600 and 10 MiB at most", info.Mode(), info.Size())
	}
	f, err := os.Open(k.Path(name))
	k.ok("open the bundle", err)
	defer f.Close()
	plain, err := gzip.NewReader(f)
	k.ok("decompress the bundle", err)
	files, in := map[string]string{}, tar.NewReader(plain)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		k.ok("read the bundle", err)
		content, err := io.ReadAll(in)
		k.ok("read the bundle", err)
		_, below, _ := strings.Cut(h.Name, "/")
		files[below] = string(content)
	}
}

// noSecret fails the test if a file has the secret, as it is or in base64.
func (k *kubelet) noSecret(files map[string]string, secret string) {
	k.Helper()
	encoded := base64.StdEncoding.EncodeToString([]byte("joe:" + secret))
	for name, content := range files {
		for _, form := range []string{secret, encoded, "4711\""} {
			if strings.Contains(content, form) {
				k.Errorf("%s has the secret %s", name, form)
			}
		}
	}
}
