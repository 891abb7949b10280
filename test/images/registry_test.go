package images

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"
)

const small = "pause:3.10"

func TestRegistryServesAndMisbehaves(t *testing.T) {
	r := Serve(t)
	user := remote.WithAuth(&authn.Basic{Username: User, Password: Password})
	stranger := remote.WithAuth(&authn.Basic{Username: User, Password: "guess"})
	cases := []struct {
		image string
		opt   remote.Option
		fails string // empty: it can be pulled
	}{
		{small, nil, ""},
		{"podd/multiarch:latest", nil, ""},
		{"podd/layered:latest", nil, ""},
		{"no/such:image", nil, "NAME_UNKNOWN"},
		{"auth.test/" + small, user, ""},
		{"auth.test/" + small, nil, "UNAUTHORIZED"},
		{"auth.test/" + small, stranger, "UNAUTHORIZED"},
		{"slow/" + small, nil, ""},
		{"corrupt/" + small, nil, "error verifying"},
		{"truncated/" + small, nil, "unexpected EOF"},
		{"malformed/" + small, nil, "EOF"},
		{"broken/" + small, nil, "disk on fire"},
	}
	for _, c := range cases {
		opts := []remote.Option{}
		if c.opt != nil {
			opts = append(opts, c.opt)
		}
		err := pull(t.Context(), reference(t, r, c.image), opts...)
		if c.fails == "" && err != nil {
			t.Errorf("%s: %v", c.image, err)
		}
		if c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
			t.Errorf("pull of %s = %v, want an error with %q", c.image, err, c.fails)
		}
	}
}

func TestTheTokenIsWanted(t *testing.T) {
	r := Serve(t)
	for header, want := range map[string]int{"Bearer " + Token: 200, "Bearer guess": 401, "": 401} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.TokenAddr+"/v2/pause/manifests/3.10",
			nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", header)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != want {
			t.Errorf("Authorization %q: %s, %v, want %d", header, resp.Status, err, want)
		}
	}
}

func TestStalledWaitsForRelease(t *testing.T) {
	r := Serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := pull(ctx, reference(t, r, "stalled/"+small)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stalled pull = %v, want DeadlineExceeded", err)
	}
	r.Release()
	if err := pull(t.Context(), reference(t, r, "stalled/"+small)); err != nil {
		t.Errorf("pull after Release = %v, want success", err)
	}
	if !strings.Contains(strings.Join(r.Requests(), "\n"), "GET /v2/stalled/pause/manifests/3.10") {
		t.Errorf("requests = %q, want one for the manifest", r.Requests())
	}
}

func TestEveryNameGoesToTheTestRegistry(t *testing.T) {
	dir := t.TempDir()
	conf, policy, err := (&Registry{Addr: "127.0.0.1:5555", AuthAddr: "127.0.0.1:5556",
		TokenAddr: "127.0.0.1:5557"}).WriteConf(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(policy); err != nil {
		t.Error(err)
	}
	sys := &types.SystemContext{SystemRegistriesConfPath: conf, SystemRegistriesConfDirPath: filepath.Join(dir, "none")}
	for _, image := range []string{"registry.k8s.io/pause", "k8s.gcr.io/pause", "gcr.io/k8s-staging-cri-tools/x",
		"docker.io/library/busybox", "public.ecr.aws/docker/library/busybox", "127.0.0.1:5555/podd/config"} {
		reg, err := sysregistriesv2.FindRegistry(sys, image)
		if err != nil || reg == nil {
			t.Errorf("registry of %s = %v, %v, want one", image, reg, err)
			continue
		}
		for _, e := range append(reg.Mirrors, reg.Endpoint) {
			if e.Location != "127.0.0.1:5555" || !e.Insecure {
				t.Errorf("%s is pulled from %s (insecure %v), want 127.0.0.1:5555 (insecure true)", image, e.Location,
					e.Insecure)
			}
		}
	}
}
