package registry

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/docker/config"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"
	"golang.org/x/sys/unix"
)

// credentialSet are credentials by name of a repository, host included.
type credentialSet map[string]types.DockerAuthConfig

// findCredentials returns the node's credentials for repositories: from the auth file, or from credential helpers that
// it or registries.conf names. A repository without credentials has empty ones.
func (c Config) findCredentials(ctx context.Context, names []reference.Named) (credentialSet, error) {
	if len(names) == 0 {
		return credentialSet{}, nil
	}
	helpers, err := c.usesHelpers(names)
	if err != nil {
		return nil, err
	}
	job := helperJob{Config: c}
	for _, name := range names {
		job.Names = append(job.Names, name.Name())
	}
	if helpers {
		return askHelpers(ctx, job, helperTimeout)
	}
	return job.lookUp()
}

// usesHelpers reports whether a program has to run to find the credentials for repositories.
func (c Config) usesHelpers(names []reference.Named) (bool, error) {
	helpers, err := sysregistriesv2.CredentialHelpers(c.SystemContext())
	if err != nil {
		return false, fmt.Errorf("read the credential helpers of registries.conf: %w", err)
	}
	if slices.ContainsFunc(helpers, func(h string) bool { return h != sysregistriesv2.AuthenticationFileHelper }) {
		return true, nil
	}
	file, err := c.fileHelpers()
	return slices.ContainsFunc(names, func(name reference.Named) bool {
		return file.CredHelpers[reference.Domain(name)] != ""
	}), err
}

// fileHelpers are the credential helpers in an auth file.
type fileHelpers struct {
	CredHelpers map[string]string `json:"credHelpers"`
	// CredsStore is docker's helper for all registries, which the library ignores.
	CredsStore string `json:"credsStore"`
}

// fileHelpers reads those of AuthFile.
func (c Config) fileHelpers() (file fileHelpers, err error) {
	if c.AuthFile == "" {
		return file, nil
	}
	raw, err := os.ReadFile(c.AuthFile)
	if errors.Is(err, fs.ErrNotExist) {
		return file, nil
	}
	if err != nil {
		return file, fmt.Errorf("read auth_file: %w", err)
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return file, fmt.Errorf("parse auth_file %s: %w", c.AuthFile, err)
	}
	return file, nil
}

// lookUp finds the credentials, running helpers in this process's environment.
func (j helperJob) lookUp() (credentialSet, error) {
	sys := j.Config.SystemContext()
	out := credentialSet{}
	for _, name := range j.Names {
		found, err := config.GetCredentials(sys, name)
		if err != nil {
			return nil, fmt.Errorf("find the node's credentials for %s: %w", name, err)
		}
		out[name] = found
	}
	return out, nil
}

// file returns an open file in memory in the format of containers-auth.json(5): nothing is left of it after a crash.
func (s credentialSet) file() (*os.File, error) {
	type entry struct {
		Auth          string `json:"auth,omitempty"`
		IdentityToken string `json:"identitytoken,omitempty"`
	}
	auths := map[string]entry{}
	for name, found := range s {
		e := entry{IdentityToken: found.IdentityToken}
		if found != (types.DockerAuthConfig{}) {
			e.Auth = base64.StdEncoding.EncodeToString([]byte(found.Username + ":" + found.Password))
		}
		auths[name] = e // an empty one too: without it, those of a parent would be used
	}
	fd, err := unix.MemfdCreate("credentials", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "credentials")
	if err := json.NewEncoder(file).Encode(map[string]any{"auths": auths}); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
