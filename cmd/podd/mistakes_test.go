package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestMistakes: what people type wrong is an error that says what to do.
func TestMistakes(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "podd.toml")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"statsu"}, exitConfig, `unknown command "statsu" (did you mean status?)`},
		{[]string{"image", "lst"}, exitConfig, `unknown command "lst" (did you mean list?)`},
		{[]string{"checkpoint", "verfy", "d"}, exitConfig, `unknown command "verfy" (did you mean verify?)`},
		{[]string{"config", "nonsense"}, exitConfig, `unknown command "nonsense" (see podd config --help)`},
		{[]string{"vm", "foo"}, exitConfig, `unknown command "foo" (see podd vm --help)`},
		{[]string{"image", "list", "-q", "-o", "json"}, exitConfig, "leave out --output"},
		{[]string{"status", "a", "b"}, exitConfig, "2 arguments, want at most one (see podd status --help)"},
		{[]string{"checkpoint", "create", "", missing}, exitConfig, "POD is empty"},
		{[]string{"status", "--config", missing}, exitConfig, missing},
		{[]string{"ui", "--run", filepath.Dir(missing)}, exitFailure, "is podd running?"},
	} {
		var out, errs strings.Builder
		code := execute(tt.args, &out, &errs)
		if code != tt.code || !strings.Contains(errs.String(), tt.want) || out.Len() > 0 {
			t.Errorf("podd %v: exit status %d, %q, output %q, want %d and %q", tt.args, code, errs.String(), out.String(),
				tt.code, tt.want)
		}
	}
	for _, args := range [][]string{{"--version"}, {"image"}} {
		var out, errs strings.Builder
		if code := execute(args, &out, &errs); code != 0 || out.Len() == 0 {
			t.Errorf("podd %v: exit status %d, output %q, want 0 and text", args, code, out.String())
		}
	}
}
