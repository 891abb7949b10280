package spec

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestSchema checks every golden answer against the JSON schema of the runtime-spec.
func TestSchema(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/opencontainers/runtime-spec").Output()
	if err != nil {
		t.Fatalf("find the runtime-spec module: %v", err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft4)
	compiler.UseLoader(loader{})
	schema, err := compiler.Compile(filepath.Join(strings.TrimSpace(string(out)), "schema", "config-schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range goldens(t) {
		s, _, err := in.make()
		if err != nil {
			t.Fatal(err)
		}
		// The specification knows "slave" and "shared" only, every runtime takes the recursive forms, and with the plain
		// ones runc leaves the propagation of what is mounted below the root as it is on the node.
		s.Linux.RootfsPropagation = strings.TrimPrefix(s.Linux.RootfsPropagation, "r")
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(data)))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(document); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A check that cannot fail is none.
	if schema.Validate(map[string]any{"ociVersion": 1}) == nil {
		t.Error("the schema accepts nonsense")
	}
}

// loader reads schema files. One of runtime-spec 1.3.0 has a reference without the slash that JSON pointers begin with.
type loader struct{}

func (loader) Load(url string) (any, error) {
	data, err := os.ReadFile(strings.TrimPrefix(url, "file://"))
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(strings.NewReader(strings.ReplaceAll(string(data), "#definitions/", "#/definitions/")))
}
