package registry

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/pelletier/go-toml/v2"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"
)

// Source is a place to pull an image from: a mirror, or its registry.
type Source = sysregistriesv2.PullSource

// Sources returns where to pull ref from, in the order to try: the mirrors of registries.conf, then the registry, which
// may be another than ref's. Errors: errdefs.ErrPermissionDenied if registries.conf blocks it.
func (c Config) Sources(ref reference.Named) ([]Source, error) {
	sys := c.SystemContext()
	registry, err := sysregistriesv2.FindRegistry(sys, ref.Name())
	if err != nil {
		return nil, fmt.Errorf("look %s up in registries.conf: %w", ref.Name(), err)
	}
	if registry == nil {
		own := Source{Reference: ref}
		own.Endpoint.Insecure = onLoopback(reference.Domain(ref))
		return []Source{own}, nil
	}
	if registry.Blocked {
		return nil, fmt.Errorf("registry %s is blocked in %s: %w", registry.Prefix,
			sysregistriesv2.ConfigurationSourceDescription(sys), errdefs.ErrPermissionDenied)
	}
	sources, err := registry.PullSourcesFromReference(ref)
	if err != nil {
		return nil, fmt.Errorf("find the mirrors of %s: %w", ref, err)
	}
	return sources, nil
}

// PullConfig is the configuration of a pull from one source: registries.conf has that alone, and of the node's
// credentials there are those for it. Programs that registries.conf and the auth file name have run already.
type PullConfig struct {
	// Config names the files below as RegistriesConf and AuthFile.
	Config
	// Sys is for questions that the daemon itself asks the registry.
	Sys *types.SystemContext
	// Hosts are those of all of the operator's registries.conf.
	Hosts []string
	// Dir is for temporary files of the pull.
	Dir string
	// Credentials is a file in memory.
	Credentials *os.File
}

// WithoutRegistry returns the configuration of a job that asks no registry, with a directory in temp. The caller closes
// it.
func (c Config) WithoutRegistry(temp string) (*PullConfig, error) {
	p := &PullConfig{Config: c}
	if err := p.writeFiles(temp, nil); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (c *PullConfig) writeFiles(temp string, found credentialSet, registries ...sysregistriesv2.Registry) (err error) {
	if c.Dir, err = os.MkdirTemp(temp, "pull-"); err != nil {
		return err
	}
	raw, err := toml.Marshal(struct {
		Registries []sysregistriesv2.Registry `toml:"registry"`
	}{registries})
	if err != nil {
		return fmt.Errorf("write the registry's part of registries.conf: %w", err)
	}
	c.RegistriesConf = filepath.Join(c.Dir, "registries.conf")
	if err := os.WriteFile(c.RegistriesConf, raw, 0o600); err != nil {
		return err
	}
	if c.Credentials, err = found.file(); err != nil {
		return err
	}
	c.AuthFile = fmt.Sprintf("/proc/self/fd/%d", c.Credentials.Fd())
	return nil
}

// Close removes the files.
func (c *PullConfig) Close() {
	if c.Credentials != nil {
		_ = c.Credentials.Close() // in memory
	}
	_ = os.RemoveAll(c.Dir) // what stays is removed at the next start
}

// ForPull returns the configuration of a pull of ref from one of its Sources. The credentials of the request, auth,
// take precedence over the node's. Its directory is made in temp. The caller closes the result.
func (c Config) ForPull(
	ctx context.Context, ref reference.Named, from Source, auth *Auth, temp string,
) (*PullConfig, error) {
	sys := c.SystemContext()
	if err := auth.Apply(sys, ref); err != nil {
		return nil, err
	}
	var needed []reference.Named
	if sys.DockerAuthConfig == nil || reference.Domain(from.Reference) != reference.Domain(ref) {
		needed = []reference.Named{from.Reference}
	}
	found, err := c.findCredentials(ctx, needed)
	if err != nil {
		return nil, err
	}
	p := &PullConfig{Config: c}
	if p.Hosts, err = c.hosts(); err != nil {
		return nil, err
	}
	table := sysregistriesv2.Registry{Prefix: ref.Name(), Endpoint: from.Endpoint}
	table.Location, table.PullFromMirror = from.Reference.Name(), ""
	if err := p.writeFiles(temp, found, table); err != nil {
		p.Close()
		return nil, err
	}
	p.Sys = p.Config.SystemContext()
	p.Sys.DockerAuthConfig, p.Sys.DockerBearerRegistryToken = sys.DockerAuthConfig, sys.DockerBearerRegistryToken
	return p, nil
}
