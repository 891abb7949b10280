package registry

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"
)

// minPrefix is the minimum number of hex digits of an id; a shorter string is a name.
const minPrefix = 4

// maxReference bounds a reference's length: 255 for the name, 128 for the tag, 135 for a sha512 digest, and separators.
const maxReference = 1024

// ParseReference parses a user's reference. The result has either a tag or a digest: a digest makes the tag irrelevant.
// short is true if the name has no registry.
func ParseReference(s string) (ref reference.Named, short bool, err error) {
	if len(s) > maxReference {
		return nil, false, fmt.Errorf("image reference of %d bytes: %w", len(s), errdefs.ErrInvalidArgument)
	}
	named, err := reference.ParseNormalizedNamed(s)
	if err != nil {
		return nil, false, fmt.Errorf("image reference %q: %w: %w", s, err, errdefs.ErrInvalidArgument)
	}
	if digested, ok := named.(reference.Digested); ok {
		if of := digested.Digest().Algorithm(); of != digest.Canonical {
			return nil, false, fmt.Errorf("image reference %q: digests of %s are not supported, use the image's sha256 "+
				"digest or a tag: %w", s, of, errdefs.ErrInvalidArgument)
		}
		named, err = reference.WithDigest(reference.TrimNamed(named), digested.Digest())
		if err != nil {
			return nil, false, fmt.Errorf("image reference %q: %w: %w", s, err, errdefs.ErrInvalidArgument)
		}
	}
	return reference.TagNameOnly(named), isShort(s), nil
}

// isShort reports whether a reference has no registry, by docker's rule: the part before the first slash is a host if
// it has a dot or a colon or is localhost.
func isShort(s string) bool {
	host, _, found := strings.Cut(s, "/")
	return !found || !strings.ContainsAny(host, ".:") && host != "localhost"
}

// Candidates returns the full references that s may mean, the most likely first. A short name is an alias, or is looked
// up in the registries that registries.conf lists; without either it is docker.io's. The library makes a lock file in
// the directory scratch.
func (c Config) Candidates(s, scratch string) ([]reference.Named, error) {
	ref, short, err := ParseReference(s)
	if err != nil || !short {
		return []reference.Named{ref}, err
	}
	repo, sys := unqualified(s), c.SystemContext()
	sys.UserShortNameAliasConfPath = filepath.Join(scratch, "nowhere")
	alias, _, err := sysregistriesv2.ResolveShortNameAlias(sys, repo)
	if err != nil {
		return nil, fmt.Errorf("look up short name %q: %w", repo, err)
	}
	if alias != nil {
		return rename(ref, alias.Name())
	}
	registries, err := sysregistriesv2.UnqualifiedSearchRegistries(sys)
	if err != nil {
		return nil, fmt.Errorf("read registries.conf: %w", err)
	}
	var repos []string
	for _, r := range registries {
		repos = append(repos, r+"/"+repo)
	}
	if len(repos) == 0 {
		return []reference.Named{ref}, nil
	}
	return rename(ref, repos...)
}

// unqualified returns the repository of a short reference as it was written: no tag, no digest, no docker.io/library.
func unqualified(s string) string {
	s, _, _ = strings.Cut(s, "@")
	s, _, _ = strings.Cut(s, ":")
	return s
}

// rename returns references with ref's tag or digest and other repositories.
func rename(ref reference.Named, repos ...string) ([]reference.Named, error) {
	var out []reference.Named
	for _, repo := range repos {
		named, err := reference.ParseNormalizedNamed(repo)
		if err != nil {
			return nil, fmt.Errorf("short name: repository %q of registries.conf: %w: %w",
				repo, err, errdefs.ErrInvalidArgument)
		}
		named = reference.TrimNamed(named)
		switch r := ref.(type) {
		case reference.Digested:
			named, err = reference.WithDigest(named, r.Digest())
		case reference.Tagged:
			named, err = reference.WithTag(named, r.Tag())
		}
		if err != nil {
			return nil, fmt.Errorf("short name: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		out = append(out, named)
	}
	return out, nil
}

// IDPrefix returns the hex digits if s can be an image id or a prefix of one. full is true for a whole id.
func IDPrefix(s string) (hex string, full, ok bool) {
	hex = strings.TrimPrefix(s, "sha256:")
	if len(hex) < minPrefix || len(hex) > 64 || strings.Trim(hex, "0123456789abcdef") != "" {
		return "", false, false
	}
	return hex, len(hex) == 64, true
}

// CheckShortName fails if a short name has several candidates and registries.conf has the short-name-mode "enforcing",
// which demands that a user chooses one.
func (c Config) CheckShortName(candidates []reference.Named) error {
	if len(candidates) < 2 {
		return nil
	}
	mode, err := sysregistriesv2.GetShortNameMode(c.SystemContext())
	if err != nil {
		return fmt.Errorf("read registries.conf: %w", err)
	}
	if mode != types.ShortNameModeEnforcing {
		return nil
	}
	return fmt.Errorf("the short name may mean %v, and short-name-mode in registries.conf is \"enforcing\": "+
		"use a full name, or add an alias: %w", candidates, errdefs.ErrInvalidArgument)
}

// Repository returns a name without its tag or digest. The name must be one from storage: fully qualified and
// normalised.
func Repository(name string) string {
	if repo, _, ok := strings.Cut(name, "@"); ok {
		return repo
	}
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		return name[:i]
	}
	return name
}
