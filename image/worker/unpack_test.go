package worker

import (
	"strings"
	"testing"
)

// TestMeter: the files and bytes of all layers count together.
func TestMeter(t *testing.T) {
	m := &unpackMeter{mostBytes: 1 << 20, mostFiles: 150}
	for _, step := range []struct {
		files, bytes int64
		want         string
	}{{150, 0, ""}, {0, 1 << 20, ""}, {1, 0, "more than 150 files"}, {0, 1, "more than 1048576 bytes (max_image_bytes)"}} {
		err := m.add(step.files, step.bytes)
		if err == nil && step.want != "" || err != nil && (step.want == "" || !strings.Contains(err.Error(), step.want)) {
			t.Errorf("add(%d, %d) = %v, want %q", step.files, step.bytes, err, step.want)
		}
	}
}
