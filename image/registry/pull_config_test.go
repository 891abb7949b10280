package registry

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.podman.io/image/v5/docker/reference"
)

// TestSources: a pull tries the mirrors for its kind of reference, then the registry. The configuration for each has
// the node's credentials for it alone, and none for the host that the request has credentials for.
func TestSources(t *testing.T) {
	dir := t.TempDir()
	c := Config{RegistriesConf: filepath.Join(dir, "registries.conf"), AuthFile: filepath.Join(dir, "auth.json")}
	conf := "[[registry]]\nprefix = \"origin.test\"\nlocation = \"origin.test\"\n"
	auths := map[string]any{}
	for _, host := range []string{"all", "tag-only", "digest-only", "origin"} {
		auths[host+".test"] = map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(host + ":secret"))}
		if host != "origin" {
			conf += fmt.Sprintf("[[registry.mirror]]\nlocation = \"%s.test/cache\"\npull-from-mirror = %q\n", host, host)
		}
	}
	raw, err := json.Marshal(map[string]any{"auths": auths})
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{c.RegistriesConf: conf, c.AuthFile: string(raw)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const byDigest = "origin.test/app@sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	given := &Auth{Username: "of", Password: "the request"}
	for name, test := range map[string]struct {
		ref  string
		auth *Auth
		// want is the repository of each source, and then the users in its credentials.
		want []string
	}{
		"tag": {"origin.test/app:v1", nil, []string{"all.test/cache/app all", "tag-only.test/cache/app tag-only",
			"origin.test/app origin"}},
		"digest": {byDigest, nil, []string{"all.test/cache/app all", "digest-only.test/cache/app digest-only",
			"origin.test/app origin"}},
		"no config": {"other.test/app:v1", nil, []string{"other.test/app "}},
		"given": {"origin.test/app:v1", given, []string{"all.test/cache/app all", "tag-only.test/cache/app tag-only",
			"origin.test/app"}},
	} {
		t.Run(name, func(t *testing.T) {
			ref, err := reference.ParseNamed(test.ref)
			if err != nil {
				t.Fatal(err)
			}
			sources, err := c.Sources(ref)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, from := range sources {
				users := usersOf(t, c, ref, from, test.auth)
				got = append(got, strings.Join(append([]string{from.Reference.Name()}, users...), " "))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("sources with users = %q, want %q", got, test.want)
			}
		})
	}
}

// usersOf returns the users in the credentials of the configuration for a source, which names no other.
func usersOf(t *testing.T, c Config, ref reference.Named, from Source, auth *Auth) (users []string) {
	t.Helper()
	p, err := c.ForPull(t.Context(), ref, from, auth, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if only, err := p.Sources(ref); err != nil || len(only) != 1 || only[0].Reference.String() != from.Reference.String() {
		t.Errorf("sources of the configuration = %v, %v, want %s", only, err, from.Reference)
	}
	raw, err := os.ReadFile(p.AuthFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Auths map[string]struct{ Auth []byte }
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(file.Auths)) {
		user, _, _ := strings.Cut(string(file.Auths[name].Auth), ":")
		users = append(users, user)
	}
	return users
}
