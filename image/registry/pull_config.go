package registry

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/pelletier/go-toml/v2"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"
)

// PullConfig is the configuration of one pull: of registries.conf and of the node's credentials, it has those for the
// pull's registry and its mirrors only. Programs that registries.conf and the auth file name have run already.
type PullConfig struct {
	// Config names the files below as RegistriesConf and AuthFile.
	Config
	// Sys is for questions that the daemon itself asks the registry.
	Sys *types.SystemContext
	// Dir is for temporary files of the pull.
	Dir string
	// Credentials is a file in memory.
	Credentials *os.File
}

// needCredentials returns the repositories that a pull may ask: the mirrors' and the registry's own, which may be
// another than ref's. Without those on the host of ref, if the request has credentials for it.
func needCredentials(
	registry *sysregistriesv2.Registry, ref reference.Named, given, variant bool,
) (names []reference.Named, err error) {
	sources, err := pullSources(registry, ref, variant)
	if err != nil {
		return nil, fmt.Errorf("find the mirrors of %s: %w", ref, err)
	}
	seen := map[string]bool{}
	for _, source := range sources {
		own := reference.Domain(source.Reference) == reference.Domain(ref)
		if given && own || seen[source.Reference.Name()] {
			continue
		}
		seen[source.Reference.Name()] = true
		names = append(names, source.Reference)
	}
	return names, nil
}

// pullSources returns the mirrors of ref and its registry. A variant is read by its digest, for which registries.conf
// may name other mirrors than for a tag.
func pullSources(
	registry *sysregistriesv2.Registry, ref reference.Named, variant bool,
) ([]sysregistriesv2.PullSource, error) {
	if registry == nil {
		return []sysregistriesv2.PullSource{{Reference: ref}}, nil
	}
	sources, err := registry.PullSourcesFromReference(ref)
	if _, digested := ref.(reference.Digested); digested || !variant || err != nil {
		return sources, err
	}
	digested, err := reference.WithDigest(reference.TrimNamed(ref), digest.FromString("any"))
	if err != nil {
		return nil, err
	}
	more, err := registry.PullSourcesFromReference(digested)
	return append(sources, more...), err
}

// WithoutRegistry returns the configuration of a job that asks no registry, with a directory in temp. The caller closes
// it.
func (c Config) WithoutRegistry(temp string) (*PullConfig, error) {
	p := &PullConfig{Config: c}
	if err := p.writeFiles(temp, nil, nil); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (c *PullConfig) writeFiles(temp string, registry *sysregistriesv2.Registry, found credentialSet) (err error) {
	if c.Dir, err = os.MkdirTemp(temp, "pull-"); err != nil {
		return err
	}
	var file struct {
		Registries []sysregistriesv2.Registry `toml:"registry"`
	}
	if registry != nil {
		file.Registries = []sysregistriesv2.Registry{*registry}
	}
	raw, err := toml.Marshal(file)
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

// ForPull reads the node's configuration for a pull of ref, which may select a variant of a list by annotations. The
// credentials of the request, auth, take precedence. Its directory is made in temp. The caller closes the result.
func (c Config) ForPull(
	ctx context.Context, ref reference.Named, auth *Auth, variant bool, temp string,
) (*PullConfig, error) {
	sys := c.SystemContext()
	if err := auth.Apply(sys, ref); err != nil {
		return nil, err
	}
	registry, err := sysregistriesv2.FindRegistry(sys, ref.Name())
	if err != nil {
		return nil, fmt.Errorf("look %s up in registries.conf: %w", ref.Name(), err)
	}
	if registry != nil && registry.Blocked {
		return nil, fmt.Errorf("registry %s is blocked in %s: %w", registry.Prefix,
			sysregistriesv2.ConfigurationSourceDescription(sys), errdefs.ErrPermissionDenied)
	}
	names, err := needCredentials(registry, ref, sys.DockerAuthConfig != nil, variant)
	if err != nil {
		return nil, err
	}
	found, err := c.findCredentials(ctx, names)
	if err != nil {
		return nil, err
	}
	p := &PullConfig{Config: c}
	if err := p.writeFiles(temp, registry, found); err != nil {
		p.Close()
		return nil, err
	}
	p.Sys = p.Config.SystemContext()
	p.Sys.DockerAuthConfig, p.Sys.DockerBearerRegistryToken = sys.DockerAuthConfig, sys.DockerBearerRegistryToken
	if err := TrustLoopback(p.Sys, ref); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}
