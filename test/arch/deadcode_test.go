package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"testing"
)

// TestDeadCodeIsLeftOut: podd imports none of the packages that are known to call methods by names which only the
// running program knows. With one of them the linker keeps every exported method of every type, 6 MB of a program that
// each pull starts several times.
func TestDeadCodeIsLeftOut(t *testing.T) {
	// What calls such methods, and who may import it nevertheless. cobra calls it by a function that the linker leaves
	// out of a program without templates of its own.
	importers := map[string][]string{
		"text/template": {"github.com/spf13/cobra"}, "html/template": nil, "golang.org/x/net/trace": nil,
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Imports", "-tags",
		makefileVariable(t, "TAGS"), "./cmd/podd")
	cmd.Dir = "../.."
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for dec := json.NewDecoder(out); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, imported := range p.Imports {
			if may, calls := importers[imported]; calls && !slices.Contains(may, p.ImportPath) {
				t.Errorf("podd has %s, which imports %s, want neither", p.ImportPath, imported)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
