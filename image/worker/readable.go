package worker

import (
	"debug/elf"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/podd-project/podd/image/registry"
)

// systemPaths may be read by a pull's process on every node: certificates, the resolver's files, and the
// directories where containers/image looks for its configuration and for signatures. Not all of /etc, which holds the
// node's keys and password hashes, nor of /usr and /opt, where agents keep theirs.
var systemPaths = []string{
	"/etc/containers", "/etc/docker/certs.d", "/run/containers", "/usr/share/containers", "/var/lib/containers/sigstore",
	"/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem", "/etc/ca-certificates", "/etc/pki/ca-trust",
	"/etc/pki/tls/certs", "/etc/pki/tls/cacert.pem", "/etc/pki/tls/cert.pem", "/var/lib/ca-certificates",
	"/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/usr/share/pki", "/nix/store", "/gnu/store",
	"/usr/share/zoneinfo",
	"/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services",
	"/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager",
	"/etc/passwd", "/etc/group", "/etc/localtime", "/proc", "/sys/kernel/mm",
}

// signatureDirs have the drop-in files that name directories of signatures: containers-registries.d(5). Those in the
// middle are root's (storage/pkg/configfile).
var signatureDirs = []string{
	"/etc/containers/registries.d", "/etc/containers/registries.rootful.d",
	"/usr/share/containers/registries.rootful.d", "/usr/share/containers/registries.d",
}

// authorityDirs have the certificates of authorities, or links to them.
var authorityDirs = []string{"/etc/ssl/certs", "/etc/pki/tls/certs"}

// libraryPaths returns the directories of shared libraries if this program needs them: a release does not.
func libraryPaths() []string {
	program, err := elf.Open("/proc/self/exe")
	if err != nil {
		return nil // it will not run without them, and says so
	}
	defer program.Close()
	isInterpreter := func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }
	if !slices.ContainsFunc(program.Progs, isInterpreter) {
		return nil
	}
	return []string{"/lib", "/lib64", "/usr/lib", "/usr/lib64", "/nix/store", "/gnu/store", "/etc/ld.so.cache"}
}

// readablePaths returns the files that the configuration names, anywhere, for a pull's process to read.
func readablePaths(c registry.Config) []string {
	paths := []string{c.RegistriesConf, c.RegistriesConfDir(), c.Policy, c.DecryptionKeysPath, os.Getenv("SSL_CERT_FILE")}
	certificates := filepath.SplitList(os.Getenv("SSL_CERT_DIR"))
	paths = slices.Concat(paths, certificates, registry.PolicyPaths(c.Policy))
	for _, dir := range signatureDirs {
		paths = append(paths, lookasidePaths(dir)...)
	}
	withLinks := slices.Concat(certificates, authorityDirs, signatureDirs, registry.CertificateDirs,
		[]string{c.RegistriesConfDir(), c.DecryptionKeysPath})
	for _, dir := range withLinks {
		paths = append(paths, linkTargets(dir)...)
	}
	for _, dir := range registry.CertificateDirs {
		registries, _ := filepath.Glob(dir + "/*") // fails for a malformed pattern only
		for _, registry := range registries {
			paths = append(paths, linkTargets(registry)...)
		}
	}
	return slices.DeleteFunc(paths, func(path string) bool { return path == "" || strings.Contains(path, "\n") })
}

// fileURL is compiled when it is needed: the program starts itself for every layer of a pull.
var fileURL = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`file://(/[^\s"']+)`) })

// lookasidePaths returns the local directories of signatures that the files of dir name.
func lookasidePaths(dir string) (out []string) {
	files, _ := filepath.Glob(dir + "/*.yaml") // fails for a malformed pattern only
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // the pull reports it
		}
		for _, match := range fileURL().FindAllSubmatch(raw, -1) {
			out = append(out, string(match[1]))
		}
	}
	return out
}

// linkTargets returns the targets of the symbolic links in dir, except those in dir or in systemPaths: Landlock checks
// where a file really is, and each path costs every pull.
func linkTargets(dir string) (out []string) {
	entries, _ := os.ReadDir(dir) // it may be missing
	for _, e := range entries {
		if e.Type()&os.ModeSymlink == 0 || leadsToReadable(dir, e.Name()) {
			continue
		}
		if target, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name())); err == nil && !isSystemPath(target) {
			out = append(out, target)
		}
	}
	return out
}

// leadsToReadable reports whether a link leads to another entry of dir, which is looked at too, or to a regular file in
// systemPaths directly. Hundreds of links to certificates do.
func leadsToReadable(dir, name string) bool {
	target, err := os.Readlink(filepath.Join(dir, name))
	if err != nil {
		return false
	}
	if !strings.Contains(target, "/") && target != "." && target != ".." {
		return true
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(dir, target)
	}
	target = filepath.Clean(target)
	info, err := os.Lstat(target)
	return err == nil && info.Mode().IsRegular() && isSystemPath(target)
}

// isSystemPath reports whether a clean path is one of systemPaths, or below one.
func isSystemPath(path string) bool {
	return slices.ContainsFunc(systemPaths, func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") })
}
