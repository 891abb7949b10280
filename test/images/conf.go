package images

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// hosts are the registries that the tests' image names begin with.
var hosts = []string{"registry.k8s.io", "k8s.gcr.io", "gcr.io", "docker.io", "public.ecr.aws", "registry.test"}

// WriteConf writes a registries.conf that sends every pull from the usual registries to this one, as a mirror and, so
// that no test ever leaves the machine, in place of the registry itself; and a policy.json that accepts everything.
// The registries that want credentials go by their own addresses: credentials for one host are not sent to a mirror.
// It returns the files' paths.
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
