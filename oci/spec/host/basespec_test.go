package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadBaseSpec(t *testing.T) {
	path := filepath.Join(t.TempDir(), "base.json")
	for name, c := range map[string]struct{ text, says string }{
		"empty":           {"", "EOF"},
		"no JSON":         {"{", "unexpected EOF"},
		"two values":      {"{} {}", "more than one JSON value"},
		"unknown field":   {`{"procesz": {}}`, `unknown field "procesz"`},
		"wrong type":      {`{"process": 1}`, "cannot unmarshal"},
		"large":           {strings.Repeat(" ", maxBaseSpec) + "{}", "has more than 1048576 bytes"},
		"seccomp":         {`{"linux": {"seccomp": {"defaultAction": "SCMP_ACT_ALLOW"}}}`, "linux.seccomp has no effect"},
		"AppArmor":        {`{"process": {"apparmorProfile": "x"}}`, "process.apparmorProfile has no effect"},
		"sysctl":          {`{"linux": {"sysctl": {"a": "b"}}}`, "use default_sysctls"},
		"annotations":     {`{"annotations": {"a": "b"}}`, "use default_annotations"},
		"variable":        {`{"process": {"env": ["A"]}}`, `variable 0, "A", is not NAME=value`},
		"resource limit":  {`{"process": {"rlimits": [{"type": "NOFILE", "hard": 1, "soft": 1}]}}`, `"NOFILE" is not a`},
		"capability":      {`{"process": {"capabilities": {"bounding": ["CAP_X"]}}}`, `"CAP_X" is not a Linux capability`},
		"relative mount":  {`{"mounts": [{"destination": "x"}]}`, `mounts: "x" is not an absolute path`},
		"what podd takes": {`{"process": {"env": ["A=b"], "noNewPrivileges": true}, "linux": {"maskedPaths": ["/x"]}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			base, err := ReadBaseSpec(path)
			if c.says == "" {
				if err != nil || base.Process.Env[0] != "A=b" {
					t.Fatalf("ReadBaseSpec() = %v, %v; want the spec", base, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("error = %v, want one with %q and the file's name", err, c.says)
			}
		})
	}
}
