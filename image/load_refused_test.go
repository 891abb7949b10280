package image

import (
	"strings"
	"testing"

	"github.com/podd-project/podd/image/worker"
)

// TestRegisterLoadedRefuses: podd believes no name and no id that the process of a load reports.
func TestRegisterLoadedRefuses(t *testing.T) {
	s := testStore(t, func(*Config) {})
	for _, c := range []struct {
		image worker.Loaded
		want  string
	}{
		{worker.Loaded{ID: "absent"}, "look up the image"},
		{worker.Loaded{ID: "absent", Names: []string{"\x1b[2J"}}, "invalid reference"},
		{worker.Loaded{ID: "absent", Names: []string{"short"}}, "canonical"},
	} {
		if err := s.registerLoaded(t.Context(), c.image, t.TempDir()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("registerLoaded(%+v) = %v, want an error with %q", c.image, err, c.want)
		}
	}
}
