package image

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/types"

	"github.com/podd-project/podd/image/registry"
)

// presentTimeout is how long the daemon itself asks a registry; a slower one is left to a pull's process.
const presentTimeout = 10 * time.Second

// present returns the image that ref names in its registry if the store has it, pulled from the same repository: the
// pull of a container with imagePullPolicy Always then starts no process. It returns nil if a process must pull.
//
// Of the registry's answer the daemon only takes or computes a digest; the library reads at most 4 MiB of it. Only for
// a name that the store has: else some registries would count two pulls.
func (s *Store) present(
	ctx context.Context, c *registry.PullConfig, ref reference.Named, r PullRequest,
) (*Image, error) {
	s.refreshIfChanged()
	if s.index.Load().byName[ref.String()] == nil || len(r.Annotations) > 0 { // which may select another variant
		return nil, nil
	}
	if !c.AcceptsUnsigned(ctx, ref.String()) {
		return nil, nil
	}
	asking, cancel := context.WithTimeout(ctx, presentTimeout)
	defer cancel()
	var found digest.Digest
	err := c.Guard(asking, c.Sys, ref, c.Hosts, func(ctx context.Context) (err error) {
		found, err = headDigest(ctx, c, ref)
		if err != nil && !errors.As(err, new(docker.ErrUnauthorizedForCredentials)) { // not all registries know it
			found, err = manifestDigest(ctx, c.Sys, ref)
		}
		return err
	})
	var untrusted *tls.CertificateVerificationError
	switch {
	case asking.Err() != nil && ctx.Err() == nil:
		return nil, nil
	case errors.As(err, &untrusted): // Go reads the node's authorities once per process: a new process knows all
		return nil, nil
	case err != nil:
		return nil, err
	}
	if wanted, ok := ref.(reference.Digested); ok && found != wanted.Digest() {
		return nil, nil // the process says so
	}
	canonical, err := reference.WithDigest(reference.TrimNamed(ref), found)
	if err != nil {
		return nil, err
	}
	// The index has intact images only. An image that was selected from a list by annotations has the list's digest in
	// a name, but not among its digests.
	e := s.index.Load().byName[canonical.String()]
	if e == nil || e.refused != nil || !slices.Contains(e.digests, found.String()) {
		return nil, nil
	}
	if slices.Contains(e.names, ref.String()) && slices.Contains(e.names, canonical.String()) {
		return e.Image, nil
	}
	stored, err := s.storage.Image(e.ID)
	if err != nil {
		return nil, fmt.Errorf("look up the present image: %w", err)
	}
	return s.register(stored, ref, canonical)
}

// headDigest asks the registry for the digest of ref: unlike a request for the manifest, this does not count as a pull.
func headDigest(ctx context.Context, c *registry.PullConfig, ref reference.Named) (digest.Digest, error) {
	sources, err := c.Sources(ref)
	if err != nil {
		return "", err
	}
	from := sources[0] // the only one
	if from.Endpoint.NamespaceProxy != "" {
		return "", errors.New("the library does not name the registry to a mirror of several")
	}
	remote, err := docker.NewReference(from.Reference)
	if err != nil {
		return "", err
	}
	sys := *c.Sys // this call ignores registries.conf, which has the mirror under the registry's name
	sys.DockerInsecureSkipTLSVerify = types.NewOptionalBool(from.Endpoint.Insecure)
	if reference.Domain(from.Reference) != reference.Domain(ref) {
		sys.DockerAuthConfig, sys.DockerBearerRegistryToken = nil, "" // those of the request are not for mirrors
	}
	return docker.GetDigest(ctx, &sys, remote)
}

// manifestDigest returns the digest of ref in its registry, computed from the manifest.
func manifestDigest(ctx context.Context, sys *types.SystemContext, ref reference.Named) (digest.Digest, error) {
	remote, err := docker.NewReference(ref)
	if err != nil {
		return "", err
	}
	source, err := remote.NewImageSource(ctx, sys)
	if err != nil {
		return "", err
	}
	defer source.Close()
	top, _, err := source.GetManifest(ctx, nil)
	if err != nil {
		return "", err
	}
	return digest.FromBytes(top), nil
}
