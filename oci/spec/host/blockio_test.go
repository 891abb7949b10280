package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestBlockIO: classes of a pod's annotations; TestPlugins has them in force.
func TestBlockIO(t *testing.T) {
	file, broken := filepath.Join(t.TempDir(), "classes.yaml"), filepath.Join(t.TempDir(), "broken.yaml")
	for path, content := range map[string]string{
		file:   "Classes:\n  low:\n  - Weight: 20\n  lower:\n  - Weight: 10\n",
		broken: "Classes:\n  low:\n  - Weight: 5\n",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const (
		ofPod       = "blockio.resources.beta.kubernetes.io/pod"
		ofContainer = "blockio.resources.beta.kubernetes.io/container."
	)
	low, unknown := map[string]string{ofPod: "low"}, map[string]string{ofPod: "x"}
	for name, test := range map[string]struct {
		file        string
		annotations map[string]string
		weight      uint16 // 0: no class
		is          func(error) bool
		text        string
	}{
		"none":             {file: file},
		"pod":              {file: file, annotations: low, weight: 20},
		"container":        {file: file, annotations: map[string]string{ofPod: "x", ofContainer + "c": "lower"}, weight: 10},
		"other container":  {file: file, annotations: map[string]string{ofContainer + "d": "lower"}},
		"not configured":   {annotations: low},
		"unknown":          {file: file, annotations: unknown, is: errdefs.IsInvalidArgument, text: "no class"},
		"no file":          {file: "/none", annotations: low, is: errdefs.IsFailedPrecondition, text: "/none"},
		"file with a flaw": {file: broken, annotations: low, is: errdefs.IsFailedPrecondition, text: "minimum"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: "c"}}
			got, err := BlockIOOf(test.file, &cri.PodSandboxConfig{Annotations: test.annotations}, c)
			switch {
			case test.is != nil:
				if err == nil || !test.is(err) || !strings.Contains(err.Error(), test.text) {
					t.Errorf("BlockIOOf = %v, want an error of that kind with %q", err, test.text)
				}
			case err != nil || (got == nil) != (test.weight == 0) || got != nil && *got.Weight != test.weight:
				t.Errorf("BlockIOOf = %+v, %v, want weight %d", got, err, test.weight)
			}
		})
	}
	const key = "blockio_config_file"
	if _, err := BlockIO("", "low"); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), key) {
		t.Errorf("BlockIO without a file = %v, want a failed precondition that names the key", err)
	}
}
