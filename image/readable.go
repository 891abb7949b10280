package image

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// systemPaths are what a pull's process may read on every node: programs and libraries, certificates, what the
// resolver needs, and the directories where containers/image looks for its configuration. Not all of /etc: it holds
// the node's keys and password hashes.
var systemPaths = []string{
	"/usr", "/lib", "/lib64", "/opt", "/nix/store", "/gnu/store", "/etc/ld.so.cache",
	"/etc/containers", "/etc/docker/certs.d", "/run/containers",
	"/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem", "/etc/ca-certificates", "/etc/pki/ca-trust",
	"/etc/pki/tls/certs", "/etc/pki/tls/cacert.pem", "/etc/pki/tls/cert.pem", "/var/lib/ca-certificates",
	"/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services",
	"/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager",
	"/etc/passwd", "/etc/group", "/etc/localtime", "/proc", "/sys/kernel/mm",
}

// signatureDirs have the drop-in files that name directories of signatures: containers-registries.d(5).
var signatureDirs = []string{"/etc/containers/registries.d", "/usr/share/containers/registries.d"}

// certificateDirs have a directory for each registry: containers-certs.d(5).
var certificateDirs = []string{"/etc/containers/certs.d", "/etc/docker/certs.d"}

// readablePaths returns what the configuration names: files anywhere, for a pull's process to read.
func readablePaths(c Config) []string {
	paths := []string{c.RegistriesConf, c.RegistriesConfDir, c.Policy, os.Getenv("SSL_CERT_FILE")}
	certificates := filepath.SplitList(os.Getenv("SSL_CERT_DIR"))
	paths = slices.Concat(paths, certificates, policyPaths(c.Policy))
	for _, dir := range signatureDirs {
		paths = append(paths, lookasidePaths(dir)...)
	}
	for _, dir := range slices.Concat(certificates, signatureDirs, certificateDirs, []string{c.RegistriesConfDir}) {
		paths = append(paths, linkTargets(dir)...)
	}
	for _, dir := range certificateDirs {
		registries, _ := filepath.Glob(dir + "/*") // fails for a malformed pattern only
		for _, registry := range registries {
			paths = append(paths, linkTargets(registry)...)
		}
	}
	return slices.DeleteFunc(paths, func(path string) bool { return path == "" || strings.Contains(path, "\n") })
}

// policyPaths returns every absolute path in a policy: keys and certificates. The pull reports an unreadable policy.
func policyPaths(policy string) []string {
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

var fileURL = regexp.MustCompile(`file://(/[^\s"']+)`)

// lookasidePaths returns the local directories of signatures that the files of dir name.
func lookasidePaths(dir string) (out []string) {
	files, _ := filepath.Glob(dir + "/*.yaml") // fails for a malformed pattern only
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // the pull reports it
		}
		for _, match := range fileURL.FindAllSubmatch(raw, -1) {
			out = append(out, string(match[1]))
		}
	}
	return out
}

// linkTargets returns what the symbolic links in dir lead to: Landlock checks where a file really is.
func linkTargets(dir string) (out []string) {
	entries, _ := os.ReadDir(dir) // it may be missing
	for _, e := range entries {
		if e.Type()&os.ModeSymlink == 0 {
			continue
		}
		if target, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name())); err == nil {
			out = append(out, target)
		}
	}
	return out
}
