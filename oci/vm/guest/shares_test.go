package guest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	task "github.com/containerd/containerd/api/runtime/task/v3"
)

// TestSharesEndWithLastUser: a share is unmounted with the last container that has it, also one that was not created.
func TestSharesEndWithLastUser(t *testing.T) {
	var unmounted []string
	s := newShares()
	s.dir, s.unmount = "/s", func(path string) { unmounted = append(unmounted, path) }
	tasks := taskService{TTRPCTaskService: ended{}, groups: newGroups("/groups"), shares: s, forget: func() {}}
	bundle := func(mount string) string {
		dir := t.TempDir()
		config := `{"root": {"path": "/s/root"}, "mounts": [{"source": "` + mount + `"}, {"source": "/etc"}]}`
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	create := func(id, bundle string) {
		_, err := tasks.Create(t.Context(), &task.CreateTaskRequest{ID: id, Bundle: bundle})
		if failed := err != nil; failed != (id == failing) {
			t.Fatalf("Create(%s) = %v", id, err)
		}
	}
	expect := func(when string, want ...string) {
		t.Helper()
		if !slices.Equal(unmounted, want) {
			t.Errorf("%s: unmounted %q, want %q", when, unmounted, want)
		}
		unmounted = nil
	}
	create("a", bundle("/s/1"))
	create("b", bundle("/s/2"))
	create(failing, bundle("/s/3"))
	expect("after a failure", "/s/3")
	for _, d := range []*task.DeleteRequest{{ID: "a", ExecID: "command"}, {ID: "a"}, {ID: "b"}} {
		if _, err := tasks.Delete(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		want := map[string][]string{"a": {"/s/1"}, "b": {"/s/root", "/s/2"}}[d.GetID()]
		if d.GetExecID() != "" {
			want = nil
		}
		expect("after "+d.String(), want...)
	}
}

// failing is the ID of a container that ended does not create.
const failing = "failing"

var errFailing = errors.New("not created")
