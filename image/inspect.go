package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	dockerconfig "go.podman.io/image/v5/pkg/docker/config"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
)

// Inspect returns what is wrong with the files that a configuration names and that pulls read: the signature policy and
// its keys, the registries, the credentials. It changes nothing and contacts no registry.
func Inspect(cfg Config) []error {
	s := &Store{}
	s.settings.Store(&cfg)
	var errs []error
	if policy, err := s.policyContext(); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", cfg.Policy, err))
	} else {
		errs = append(errs, policy.Destroy())
	}
	for _, path := range policyPaths(cfg.Policy) {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("%s names %s, which does not exist", cfg.Policy, path))
		}
	}
	sys := s.systemContext()
	sysregistriesv2.InvalidateCache()
	if _, err := sysregistriesv2.GetRegistries(sys); err != nil {
		errs = append(errs, fmt.Errorf("registries: %w", err))
	}
	if cfg.AuthFile != "" {
		if _, err := os.Stat(cfg.AuthFile); err != nil {
			errs = append(errs, fmt.Errorf("auth_file: %w", err))
		} else if _, err := dockerconfig.GetAllCredentials(sys); err != nil {
			errs = append(errs, fmt.Errorf("auth_file %s: %w", cfg.AuthFile, errors.New(scrub(err.Error(), nil))))
		}
	}
	var out []error
	for _, err := range errs {
		if err != nil {
			out = append(out, err)
		}
	}
	return out
}
