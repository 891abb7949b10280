package workloads

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/podd-project/podd/test/images"
)

// imageName is the name by which a program's image is pulled; the daemon's registries.conf has the host.
func imageName(program string) string { return "registry.test/workloads/" + program + ":latest" }

// serveImage makes the image of the program and serves it until the test ends.
func serveImage(t *testing.T, p program) *images.Registry {
	t.Helper()
	build := exec.CommandContext(t.Context(), "./build.sh", p.name)
	build.Stderr = os.Stderr
	out, err := build.Output()
	must(t, err)
	dir := strings.TrimSpace(string(out))
	img := empty.Image
	for _, name := range []string{"base", p.name} {
		layer, err := tarball.LayerFromFile(filepath.Join(dir, name+".tar.gz"))
		must(t, err)
		img, err = mutate.AppendLayers(img, layer)
		must(t, err)
	}
	file, err := img.ConfigFile()
	must(t, err)
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", runtime.GOARCH, p.image
	file.Config.Env = append(file.Config.Env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	img, err = mutate.ConfigFile(img, file)
	must(t, err)
	path, err := layout.Write(t.TempDir(), empty.Index)
	must(t, err)
	must(t, path.AppendImage(img, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": "workloads/" + p.name + ":latest",
	})))
	r, err := images.Listen(path, "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close the registry: %v", err)
		}
	})
	return r
}

// command returns the configuration of an image that runs a command.
func command(args ...string) v1.Config { return v1.Config{Cmd: args} }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
