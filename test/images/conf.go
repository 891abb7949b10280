package images

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// hosts are the registries in the tests' image names.
var hosts = []string{"registry.k8s.io", "k8s.gcr.io", "gcr.io", "docker.io", "ghcr.io", "public.ecr.aws",
	"registry.test"}

// WriteConf writes a registries.conf that redirects pulls from the public registries to this one, as a mirror and also
// as the location of the registry itself, so that no test uses the network; and a policy.json that accepts all images.
// The registries that require credentials have no mirror, because a client does not send credentials for one host to
// another. It returns the files' paths.
func (r *Registry) WriteConf(dir string) (registriesConf, policy string, err error) {
	var b strings.Builder
	b.WriteString("unqualified-search-registries = [\"docker.io\"]\n\n")
	for _, host := range hosts {
		fmt.Fprintf(&b, "[[registry]]\nprefix = %q\nlocation = %q\ninsecure = true\n\n", host, r.Addr)
		fmt.Fprintf(&b, "[[registry.mirror]]\nlocation = %q\ninsecure = true\n\n", r.Addr)
	}
	for _, addr := range []string{r.Addr, r.AuthAddr, r.TokenAddr} {
		fmt.Fprintf(&b, "[[registry]]\nlocation = %q\ninsecure = true\n\n", addr)
	}

	registriesConf = filepath.Join(dir, "registries.conf")
	if err := os.WriteFile(registriesConf, []byte(b.String()), 0o644); err != nil {
		return "", "", err
	}
	policy = filepath.Join(dir, "policy.json")
	err = os.WriteFile(policy, []byte(`{"default": [{"type": "insecureAcceptAnything"}]}`+"\n"), 0o644)
	return registriesConf, policy, err
}
