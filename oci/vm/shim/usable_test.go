package shim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/podd-project/podd/oci/vm/image"
)

// describe returns what the shim says of options.
func describe(t *testing.T, text string) map[string]string {
	t.Helper()
	any, err := anypb.New(&runtimeoptions.Options{ConfigBody: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	data, err := proto.Marshal(any)
	if err != nil {
		t.Fatal(err)
	}
	return Describe(data)
}

// TestDescribe: what a handler lacks is said by name, with what helps; emulation is a warning.
func TestDescribe(t *testing.T) {
	dir := t.TempDir()
	images := "images = '" + dir + "'\n"
	for _, c := range []struct{ name, options, annotation, want string }{
		{"no image", images + "driver = 'uml'", annotationUnusable, "podd-vm-image"},
		{"half an image", images + "driver = 'qemu'\naccelerator = 'tcg'", annotationUnusable, image.InitrdFile},
		{"wrong options", "driver = 'xen'", annotationUnusable, "xen"},
	} {
		if c.name == "half an image" {
			writeImage(t, filepath.Join(dir, "qemu"), image.KernelFile)
		}
		got := describe(t, c.options)
		if len(got) != 1 || !strings.Contains(got[c.annotation], c.want) {
			t.Errorf("%s: %q, want %s with %q", c.name, got, c.annotation, c.want)
		}
	}
	writeImage(t, filepath.Join(dir, "uml"), image.KernelFile, image.InitrdFile, image.VirtiofsdFile)
	if got := describe(t, images+"driver = 'uml'"); len(got) > 0 {
		t.Errorf("complete image: %q, want nothing", got)
	}
	if o := (Options{Driver: "qemu", Accelerator: acceleratorTCG}); o.warning() != emulated {
		t.Errorf("warning of emulation = %q, want %q", o.warning(), emulated)
	}
	if o := (Options{Driver: "qemu", Accelerator: acceleratorKVM}); o.warning() != "" {
		t.Errorf("warning with KVM = %q, want none", o.warning())
	}
}

func writeImage(t *testing.T, dir string, names ...string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
