package spec

import (
	"encoding/json"
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
	schema, err := compiler.Compile(filepath.Join(strings.TrimSpace(string(out)), "schema", "config-schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range goldens(t) {
		s, _, err := in.make()
		if err != nil {
			t.Fatal(err)
		}
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
