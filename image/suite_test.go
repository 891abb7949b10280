package image_test

import (
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/podd-project/podd/image/imagetest"
)

// suiteImage is the image that the suite expects, in two layers.
func suiteImage(t *testing.T) v1.Image {
	want := imagetest.Config()
	one, two := tree{"etc/": "", "gone": "whited out"}, tree{"bin/": "", ".wh.gone": ""}
	for path, content := range imagetest.Files() {
		if path < "c" {
			two[path] = content
		} else {
			one[path] = content
		}
	}
	return craft(t, func(c *v1.ConfigFile) {
		c.Config.Env, c.Config.Entrypoint, c.Config.User = want.Env, want.Entrypoint, want.User
	}, one, two)
}

// TestSuite runs the shared suite on the real store. The image comes from a registry that mirrors the one in its name.
func TestSuite(t *testing.T) {
	reg := newRegistry(t)
	reg.push(t, "mirrored/hello:v1", suiteImage(t))
	imagetest.Suite(t, func(t *testing.T) imagetest.Images {
		cfg := diskConfig(t)
		writeFile(t, cfg.RegistriesConf, `
[[registry]]
prefix = "registry.test/suite"
location = "registry.test/suite"
[[registry.mirror]]
location = "`+reg.host+`/mirrored"
insecure = true
`)
		s := open(t, cfg)
		pull(t, s, imagetest.Ref)
		return s
	})
}
