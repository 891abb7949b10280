package settings

import (
	"os"
	"testing"
)

// TestKataDropIn: contrib/kata/podd.toml is a valid configuration of a shim handler.
func TestKataDropIn(t *testing.T) {
	text, err := os.ReadFile("../../../contrib/kata/podd.toml")
	if err != nil {
		t.Fatal(err)
	}
	l, err := load(t, "--config", tree(t, map[string]string{"podd.toml": "", "podd.toml.d/kata.toml": string(text)}))
	if err != nil {
		t.Fatal(err)
	}
	h, ok := l.Config.Runtime.Handlers["kata"]
	if !ok || h.Type != TypeShim || h.ConfigPath == "" || len(h.AllowedAnnotations) != 2 {
		t.Errorf("handler kata = %+v, want type shim with a config_path and 2 annotations", h)
	}
}
