package registry

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"go.podman.io/image/v5/types"
)

func (c Config) SystemContext(tempDir string) *types.SystemContext {
	return &types.SystemContext{
		SystemRegistriesConfPath:    orEmpty(c.RegistriesConf),
		SystemRegistriesConfDirPath: c.orMissing(c.RegistriesConfDir()),
		UserShortNameAliasConfPath:  c.orMissing(""),
		AuthFilePath:                c.orMissing(c.AuthFile),
		BlobInfoCacheDir:            filepath.Join(c.Root, CacheDir),
		BigFilesTemporaryDir:        tempDir,
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

// orMissing returns path, or if it is empty one that never exists.
func (c Config) orMissing(path string) string {
	if path == "" {
		return filepath.Join(c.RunRoot, "nowhere")
	}
	return path
}
