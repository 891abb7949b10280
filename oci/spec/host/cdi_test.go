package host

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const cdiSpec = `{"cdiVersion":"0.6.0","kind":"vendor.com/gpu","devices":[
	{"name":"one","containerEdits":{"env":["GPU=one"],"deviceNodes":[
		{"path":"/dev/gpu1","hostPath":"/dev/null","permissions":"rw"}],
		"hooks":[{"hookName":"createRuntime","path":"/bin/true"}]}}],
	"containerEdits":{"mounts":[{"hostPath":"/usr/lib/gpu","containerPath":"/usr/lib/gpu","options":["ro","bind"]}]}}`

func TestCDI(t *testing.T) {
	dir := t.TempDir()
	c, err := NewCDI([]string{dir, filepath.Join(dir, "absent")})
	if err != nil {
		t.Fatal(err)
	}
	newSpec := func() *specs.Spec { return &specs.Spec{Process: &specs.Process{}, Linux: &specs.Linux{}} }
	s := newSpec()
	if err := c.Inject(s, []string{"vendor.com/gpu=one"}); !errors.Is(err, errdefs.ErrNotFound) ||
		!strings.Contains(err.Error(), dir) {
		t.Errorf("Inject of an unknown device: error %v, want ErrNotFound", err)
	}
	write(t, filepath.Join(dir, "broken.json"), "{")
	write(t, filepath.Join(dir, "vendor.json"), cdiSpec) // found without a restart
	if err := c.Inject(s, []string{"vendor.com/gpu=one", "vendor.com/gpu=one"}); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(s.Process.Env, "GPU=one") || len(s.Linux.Devices) != 1 || s.Linux.Devices[0].Major != 1 ||
		len(s.Mounts) != 1 || len(s.Hooks.CreateRuntime) != 1 {
		t.Errorf("spec after Inject = %+v, want the device, its mount, its variable and its hook, each once", s)
	}
	if len(s.Linux.Resources.Devices) != 1 || s.Linux.Resources.Devices[0].Access != "rw" {
		t.Errorf("resources after Inject = %+v, want a rule for the device", s.Linux.Resources)
	}
	s = newSpec()
	err = c.Inject(s, []string{"vendor.com/gpu=one", "vendor.com/gpu=two"})
	if !errors.Is(err, errdefs.ErrNotFound) || !strings.Contains(err.Error(), "gpu=two") ||
		!strings.Contains(err.Error(), "broken.json") {
		t.Errorf("Inject of a known and an unknown device: error %v, want ErrNotFound", err)
	}
	if len(s.Process.Env)+len(s.Linux.Devices)+len(s.Mounts) > 0 {
		t.Errorf("spec after a failed Inject = %+v, want it unchanged", s)
	}
}

func TestCDINil(t *testing.T) {
	var c *CDI
	if err := c.Inject(nil, nil); err != nil {
		t.Error(err)
	}
	if err := c.Inject(&specs.Spec{}, []string{"a.com/b=c"}); !errors.Is(err, errdefs.ErrFailedPrecondition) {
		t.Error(err)
	}
}

func TestCDIDevices(t *testing.T) {
	got, err := CDIDevices(&cri.ContainerConfig{
		CDIDevices: []*cri.CDIDevice{{Name: "vendor.com/gpu=one"}},
		Annotations: map[string]string{
			"cdi.k8s.io/plugin": "vendor.com/gpu=two,vendor.com/gpu=one", "other": "vendor.com/gpu=x",
		},
	})
	if want := []string{"vendor.com/gpu=one", "vendor.com/gpu=two", "vendor.com/gpu=one"}; err != nil ||
		!slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	_, err = CDIDevices(&cri.ContainerConfig{Annotations: map[string]string{"cdi.k8s.io/plugin": "no device"}})
	if !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("CDIDevices of a malformed annotation: error %v, want ErrInvalidArgument", err)
	}
}
