package registry

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// CertificateDirs have a directory for each registry: containers-certs.d(5).
var CertificateDirs = []string{"/etc/containers/certs.d", "/etc/docker/certs.d"}

// PolicyPaths returns every absolute path in a policy: keys and certificates. The pull reports an unreadable policy.
func PolicyPaths(policy string) []string {
	raw, err := os.ReadFile(policy)
	if err != nil {
		return nil
	}
	var parsed any
	if err := json.Unmarshal(raw, &parsed); err != nil {
		return nil
	}
	return absolutePaths(parsed)
}

func absolutePaths(value any) (out []string) {
	switch v := value.(type) {
	case string:
		if filepath.IsAbs(v) {
			out = append(out, v)
		}
	case []any:
		for _, element := range v {
			out = append(out, absolutePaths(element)...)
		}
	case map[string]any:
		for _, element := range v {
			out = append(out, absolutePaths(element)...)
		}
	}
	return out
}
