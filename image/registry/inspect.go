package registry

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"github.com/moby/sys/mountinfo"
	dockerconfig "go.podman.io/image/v5/pkg/docker/config"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
)

// Inspect returns the errors in the files that a configuration names and that pulls read: the signature policies
// and their keys, the registries, the credentials. It changes nothing and contacts no registry.
func Inspect(cfg Config) []error {
	errs := cfg.inspectPolicy()
	sysregistriesv2.InvalidateCache()
	if _, err := sysregistriesv2.GetRegistries(cfg.SystemContext()); err != nil {
		errs = append(errs, fmt.Errorf("registries: %w", err))
	}
	if cfg.AuthFile != "" {
		errs = append(errs, cfg.inspectCredentials("auth_file"))
	}
	errs = append(errs, inspectNamespaces("policy_dir", cfg.PolicyDir, func(namespace string) []error {
		own, err := cfg.ForNamespace(namespace)
		return append(own.inspectPolicy(), err)
	})...)
	errs = append(errs, inspectNamespaces("auth_dir", cfg.AuthDir, func(namespace string) []error {
		own, err := cfg.ForNamespace(namespace)
		return []error{err, own.inspectCredentials("auth_dir")}
	})...)
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// inspectPolicy parses the signature policy and looks for its keys.
func (c Config) inspectPolicy() (errs []error) {
	policy, err := c.PolicyContext()
	if err != nil {
		return []error{err}
	}
	errs = append(errs, policy.Destroy())
	for _, path := range PolicyPaths(c.Policy) {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("%s names %s, which does not exist", c.Policy, path))
		}
	}
	return errs
}

// InspectLayerStore returns an error if the additional layer store is not mounted. It does not call its server.
func InspectLayerStore(cfg Config) error {
	if cfg.AdditionalLayerStore == "" {
		return nil
	}
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(filepath.Clean(cfg.AdditionalLayerStore)))
	if err == nil && len(mounts) == 0 {
		err = errors.New("nothing is mounted there: start the store, else all layers are fetched")
	}
	if err != nil {
		return fmt.Errorf("additional_layer_store: %s: %w", cfg.AdditionalLayerStore, err)
	}
	return nil
}

// inspectCredentials parses AuthFile. Key is the one that names it.
func (c Config) inspectCredentials(key string) error {
	if _, err := os.Stat(c.AuthFile); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if _, err := dockerconfig.GetAllCredentials(c.SystemContext()); err != nil {
		return fmt.Errorf("%s %s: %w", key, c.AuthFile, errors.New(Scrub(err.Error(), nil)))
	}
	file, err := c.fileHelpers()
	if err == nil && file.CredsStore != "" && len(file.CredHelpers) == 0 {
		err = fmt.Errorf("%s %s: credsStore %q is not used: name the helper for each registry in credHelpers",
			key, c.AuthFile, file.CredsStore)
	}
	return err
}

// namespaceName matches the names of namespaces: DNS labels.
var namespaceName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
})

// inspectNamespaces has inspect look at the file of each namespace in dir, and reports files that no pull would use.
func inspectNamespaces(key, dir string, inspect func(namespace string) []error) (errs []error) {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return []error{fmt.Errorf("%s: %w", key, err)}
	}
	for _, e := range entries {
		namespace, ok := namespaceOf(e.Name())
		if !ok || !namespaceName().MatchString(namespace) {
			errs = append(errs, fmt.Errorf("%s: %s is not named after a namespace (NAMESPACE%s) and is not used", key,
				filepath.Join(dir, e.Name()), namespaceSuffix))
			continue
		}
		errs = append(errs, inspect(namespace)...)
	}
	return errs
}
