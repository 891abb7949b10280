package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"go.podman.io/image/v5/types"
)

// systemContext configures containers/image. Left at the library's defaults are only the directories that a node's
// administrator knows: certificates and signature look-aside. Credentials of root's home, which are for a person, are
// not used for pods: the kubelet sends those of the pod, and auth_file has those of the node.
func (s *Store) systemContext() *types.SystemContext {
	return s.cfg().systemContext(s.tempDir())
}

func (c Config) systemContext(tempDir string) *types.SystemContext {
	return &types.SystemContext{
		SystemRegistriesConfPath:    orEmpty(c.RegistriesConf),
		SystemRegistriesConfDirPath: c.orMissing(c.registriesConfDir()),
		UserShortNameAliasConfPath:  c.orMissing(""),
		AuthFilePath:                c.orMissing(c.AuthFile),
		BlobInfoCacheDir:            filepath.Join(c.Root, cacheDir),
		BigFilesTemporaryDir:        tempDir,
		OSChoice:                    runtime.GOOS,
		ArchitectureChoice:          runtime.GOARCH,
		DockerRegistryUserAgent:     "podd",
		DockerLogMirrorChoice:       false,
	}
}

// registriesConfDir returns the directory of drop-ins for RegistriesConf.
func (c Config) registriesConfDir() string {
	if c.RegistriesConf == "" {
		return ""
	}
	return c.RegistriesConf + ".d"
}

// tempDir is where layers are fetched to.
func (s *Store) tempDir() string {
	return filepath.Join(s.cfg().Root, tempDir)
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

// orMissing returns path, or if it is empty one that never exists.
func (c Config) orMissing(path string) string {
	if path == "" {
		return filepath.Join(c.RunRoot, "nowhere")
	}
	return path
}
