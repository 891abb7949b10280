package image_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podd-project/podd/image/registry"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	writeFile(t, cfg.RegistriesConf, `
unqualified-search-registries = ["one.test", "two.test"]
[[registry]]
prefix = "one.test/team"
location = "origin.test/team"
[[registry.mirror]]
location = "mirror.test/cache"
insecure = true
[[registry]]
prefix = "bad.test"
location = "bad.test"
blocked = true
`)
	const secret = "planted-secret-word"
	writeFile(t, cfg.AuthFile, fmt.Sprintf(`{"auths":{"mirror.test":{"auth":%q},"origin.test":{"auth":%q}}}`,
		base64.StdEncoding.EncodeToString([]byte("jane:"+secret)), base64.StdEncoding.EncodeToString([]byte("joe:"+secret))))
	writeFile(t, cfg.Policy, `{"default":[{"type":"reject"}],"transports":{"docker":{
		"one.test/team":[{"type":"signedBy","keyType":"GPGKeys","keyPath":"/etc/keys/team.gpg"}],
		"two.test":[{"type":"insecureAcceptAnything"}]}}}`)
	team := registry.Explanation{
		Name: "one.test/team/app:v1", Registry: "one.test/team",
		Sources: []registry.ExplainedSource{
			{Name: "mirror.test/cache/app:v1", Insecure: true, User: "jane"},
			{Name: "origin.test/team/app:v1", User: "joe"},
		},
		Policy: registry.ExplainedPolicy{
			File: cfg.Policy, Scope: "one.test/team", Requirements: []string{"signedBy /etc/keys/team.gpg"},
		},
	}
	plain := func(name, scope, requirement string) registry.Explanation {
		return registry.Explanation{
			Name: name, Sources: []registry.ExplainedSource{{Name: name}},
			Policy: registry.ExplainedPolicy{File: cfg.Policy, Scope: scope, Requirements: []string{requirement}},
		}
	}
	blocked := plain("bad.test/x:latest", "default", "reject")
	blocked.Registry, blocked.Blocked = "bad.test", true
	for ref, want := range map[string][]registry.Explanation{
		"one.test/team/app:v1": {team},
		"team/app:v1":          {team, plain("two.test/team/app:v1", "two.test", "insecureAcceptAnything")},
		"app": {
			plain("one.test/app:latest", "default", "reject"),
			plain("two.test/app:latest", "two.test", "insecureAcceptAnything"),
		},
		"bad.test/x": {blocked},
	} {
		got, err := registry.Explain(t.Context(), cfg.Config, ref)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("Explain(%s), -want +got:\n%s", ref, d)
		}
		if strings.Contains(fmt.Sprintf("%+v", got), secret) {
			t.Errorf("Explain(%s) has a password: %+v", ref, got)
		}
	}
	cfg.Policy = ""
	got, err := registry.Explain(t.Context(), cfg.Config, "two.test/x")
	if err != nil || len(got) != 1 || !cmp.Equal(got[0].Policy.Requirements, []string{"insecureAcceptAnything"}) {
		t.Errorf("Explain() without a policy = %+v, %v, want that every image is accepted", got, err)
	}
}
