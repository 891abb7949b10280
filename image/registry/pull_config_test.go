package registry

import (
	"slices"
	"testing"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
)

// TestNeedCredentials: a pull has the credentials of the mirrors that it may ask, each once: those for digests too if
// it may read a variant, and none on the host that the request has credentials for.
func TestNeedCredentials(t *testing.T) {
	mirror := func(location, by string) sysregistriesv2.Endpoint {
		return sysregistriesv2.Endpoint{Location: location, PullFromMirror: by}
	}
	registry := &sysregistriesv2.Registry{
		Prefix: "origin.test", Endpoint: mirror("origin.test", ""),
		Mirrors: []sysregistriesv2.Endpoint{mirror("all.test", ""), mirror("tags.test", sysregistriesv2.MirrorByTagOnly),
			mirror("digests.test", sysregistriesv2.MirrorByDigestOnly)},
	}
	const byDigest = "origin.test/app@sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	for name, c := range map[string]struct {
		ref            string
		given, variant bool
		want           []string
	}{
		"tag":       {ref: "origin.test/app:v1", want: []string{"all.test/app", "tags.test/app", "origin.test/app"}},
		"digest":    {ref: byDigest, want: []string{"all.test/app", "digests.test/app", "origin.test/app"}},
		"no config": {ref: "other.test/app:v1", want: []string{"other.test/app"}},
		"variant": {ref: "origin.test/app:v1", variant: true,
			want: []string{"all.test/app", "tags.test/app", "origin.test/app", "digests.test/app"}},
		"variant by digest": {ref: byDigest, variant: true,
			want: []string{"all.test/app", "digests.test/app", "origin.test/app"}},
		"given": {ref: "origin.test/app:v1", given: true, variant: true,
			want: []string{"all.test/app", "tags.test/app", "digests.test/app"}},
	} {
		t.Run(name, func(t *testing.T) {
			ref, err := reference.ParseNamed(c.ref)
			if err != nil {
				t.Fatal(err)
			}
			of := registry
			if name == "no config" {
				of = nil
			}
			names, err := needCredentials(of, ref, c.given, c.variant)
			var got []string
			for _, n := range names {
				got = append(got, n.Name())
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("needCredentials = %q, %v, want %q", got, err, c.want)
			}
		})
	}
}
