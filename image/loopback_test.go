package image_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/podd-project/podd/image"
)

// TestLoopbackWithoutTLS: a registry on loopback needs no TLS unless registries.conf requires it.
func TestLoopbackWithoutTLS(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", craft(t, nil, tree{"f": "x"}))
	_, port, _ := strings.Cut(reg.host, ":")
	for _, host := range []string{reg.host, "localhost:" + port} {
		t.Run(host, func(t *testing.T) {
			pull(t, open(t, config(t)), host+"/app:v1")
		})
	}
	t.Run("not where registries.conf wants it", func(t *testing.T) {
		cfg := config(t)
		writeFile(t, cfg.RegistriesConf, fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = false\n", reg.host))
		_, err := open(t, cfg).Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
		if err == nil || !strings.Contains(err.Error(), "HTTPS") {
			t.Errorf("pull: %v, want that TLS is insisted on", err)
		}
	})
	t.Run("registries.conf cannot be read", func(t *testing.T) {
		cfg := config(t)
		if err := errors.Join(os.Remove(cfg.RegistriesConf), os.Mkdir(cfg.RegistriesConf, 0o755)); err != nil {
			t.Fatal(err)
		}
		if _, err := open(t, cfg).Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"}); err == nil {
			t.Error("pulled all the same")
		}
	})
}
