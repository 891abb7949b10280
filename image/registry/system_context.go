package registry

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"runtime"

	"go.podman.io/image/v5/types"
)

// SystemContext configures containers/image for questions about registries. Left at the library's defaults are only the
// directories that a node's administrator knows: certificates and signature look-aside. Credentials of root's home,
// which are for a person, are not used for pods: the kubelet sends those of the pod, and auth_file has those of the
// node.
func (c Config) SystemContext() *types.SystemContext {
	return &types.SystemContext{
		SystemRegistriesConfPath:    orEmpty(c.RegistriesConf),
		SystemRegistriesConfDirPath: cmp.Or(c.RegistriesConfDir(), missing),
		UserShortNameAliasConfPath:  missing,
		AuthFilePath:                cmp.Or(c.AuthFile, missing),
		OSChoice:                    runtime.GOOS,
		ArchitectureChoice:          runtime.GOARCH,
		DockerRegistryUserAgent:     "podd",
		DockerLogMirrorChoice:       false,
	}
}

// RegistriesConfDir returns the directory of drop-ins for RegistriesConf.
func (c Config) RegistriesConfDir() string {
	if c.RegistriesConf == "" {
		return ""
	}
	return c.RegistriesConf + ".d"
}

// orEmpty returns path, or an empty file if that does not exist: the library requires a named file to exist.
func orEmpty(path string) string {
	if path == "" {
		return os.DevNull
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return os.DevNull
	}
	return path
}

// missing is a path that never exists, in place of the library's default.
const missing = "/proc/self/missing"
