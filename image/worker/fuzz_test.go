package worker

import (
	"encoding/json"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/manifest"
)

// FuzzManifest: what the store and the library read of a manifest or list does not panic.
func FuzzManifest(f *testing.F) {
	const one = `{"schemaVersion":2,"mediaType":"` + v1.MediaTypeImageManifest +
		`","config":{"digest":"sha256:` + zeros +
		`"},"layers":[]}`
	const list = `{"schemaVersion":2,"mediaType":"` + v1.MediaTypeImageIndex +
		`","manifests":[{"digest":"sha256:` + zeros +
		`","platform":{"os":"linux","architecture":"amd64"}}]}`
	for _, s := range []string{one, list, `{}`, `{"schemaVersion":1,"fsLayers":[],"history":[]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		mime := manifest.GuessMIMEType(raw)
		if manifest.MIMETypeIsMultiImage(mime) {
			var c chooser
			_, _ = c.entries(rawManifest{raw, mime}) // most are not a list
			if got := c.platforms; len(got) > maxPlatforms {
				t.Errorf("%d platforms, want at most %d", len(got), maxPlatforms)
			}
			return
		}
		man, err := manifest.FromBlob(raw, mime)
		if err != nil {
			return
		}
		Annotations(man)
		_, _ = man.ConfigInfo(), man.LayerInfos()
	})
}

// FuzzConfig: a configuration that passes the check costs no more than it may.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"config":{"Volumes":{"/a":{}},"Env":["A=b"],"User":"1:2","WorkingDir":"/x","Cmd":["c"]}}`,
		`{"os":"linux","architecture":"amd64","config":{"Labels":{"a":"b"},"ExposedPorts":{"80/tcp":{}}}}`,
		`[]`, `{"config":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var config v1.Image
		if json.Unmarshal(raw, &config) != nil || CheckConfig(&config.Config) != nil {
			return
		}
		out, err := json.Marshal(config.Config)
		const most = 6 * 256 << 10 // a byte can take six in JSON
		if err != nil || len(out) > most {
			t.Errorf("a configuration of %d bytes passes (%v), want at most %d", len(out), err, most)
		}
	})
}

const zeros = "0000000000000000000000000000000000000000000000000000000000000000"
