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
// auth.test and token.test are the hosts that want credentials. It returns the files' paths.
func (r *Registry) WriteConf(dir string) (registriesConf, policy string, err error) {
	var b strings.Builder
	b.WriteString("unqualified-search-registries = [\"docker.io\"]\n\n")
	for _, host := range hosts {
		fmt.Fprintf(&b, "[[registry]]\nprefix = %q\nlocation = %q\ninsecure = true\n\n", host, r.Addr)
		fmt.Fprintf(&b, "[[registry.mirror]]\nlocation = %q\ninsecure = true\n\n", r.Addr)
	}
	for host, addr := range map[string]string{"auth.test": r.AuthAddr, "token.test": r.TokenAddr} {
		fmt.Fprintf(&b, "[[registry]]\nprefix = %q\nlocation = %q\ninsecure = true\n\n", host, addr)
	}
	fmt.Fprintf(&b, "[[registry]]\nlocation = %q\ninsecure = true\n", r.Addr)

	registriesConf = filepath.Join(dir, "registries.conf")
	if err := os.WriteFile(registriesConf, []byte(b.String()), 0o644); err != nil {
		return "", "", err
	}
	policy = filepath.Join(dir, "policy.json")
	err = os.WriteFile(policy, []byte(`{"default": [{"type": "insecureAcceptAnything"}]}`+"\n"), 0o644)
	return registriesConf, policy, err
}
