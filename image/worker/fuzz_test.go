package worker

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/vbatts/tar-split/tar/asm"
	"github.com/vbatts/tar-split/tar/storage"
	"go.podman.io/image/v5/manifest"

	"github.com/podd-project/podd/image/registry"
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
		if got := listPlatforms(raw); len(got) > maxPlatforms {
			t.Errorf("%d platforms, want at most %d", len(got), maxPlatforms)
		}
		if manifest.MIMETypeIsMultiImage(mime) {
			_ = checkList(registry.Config{}.SystemContext(), raw, mime) // most are no list
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

// FuzzLayer passes a layer through what parses it in the processes of a pull: the meter, before it is unpacked, and
// tar-split, which both get any bytes. Neither changes or drops a byte, and what has passed the meter has no more files
// and bytes than it allows. Unpacking itself is the library's, in a chroot; TestHostileLayers has its hostile layers.
func FuzzLayer(f *testing.F) {
	for _, seed := range layerSeeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		const mostBytes, mostFiles = 1 << 20, 5 // the seeds have six
		m := &unpackMeter{unpacked: &unpacked{}, mostBytes: mostBytes, mostFiles: mostFiles}
		var passed bytes.Buffer
		err := m.copy(&passed, bytes.NewReader(raw))
		if !bytes.HasPrefix(raw, passed.Bytes()) || err == nil && passed.Len() != len(raw) {
			t.Errorf("%d of %d bytes passed the meter (%v), want all of them as they are", passed.Len(), len(raw), err)
		}
		var size, files int64
		for entries := tar.NewReader(&passed); ; files++ {
			h, err := entries.Next()
			if err != nil {
				break
			}
			size += max(h.Size, 0)
		}
		if err == nil && (files > mostFiles || size > mostBytes) {
			t.Errorf("%d files of %d bytes passed the meter, want at most %d and %d", files, size, mostFiles, mostBytes)
		}
		split, done, err := asm.NewInputTarStreamWithDone(bytes.NewReader(raw), storage.NewJSONPacker(io.Discard), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { split.Close(); <-done }()
		// It may fail, and then the pull does.
		if got, err := io.ReadAll(split); err == nil && !bytes.Equal(got, raw) {
			t.Errorf("tar-split returned %d other bytes for %d", len(got), len(raw))
		}
	})
}

// layerSeeds returns small layers of each form of header.
func layerSeeds(f *testing.F) (seeds [][]byte) {
	for _, format := range []tar.Format{tar.FormatUSTAR, tar.FormatPAX, tar.FormatGNU} {
		var raw bytes.Buffer
		w := tar.NewWriter(&raw)
		for i, kind := range []byte{tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeChar, tar.TypeFifo} {
			h := &tar.Header{Name: fmt.Sprintf("dir/%d", i), Linkname: "../x", Typeflag: kind, Mode: 0o644, Format: format}
			if format == tar.FormatPAX {
				h.PAXRecords = map[string]string{"SCHILY.xattr.user.a": "b"}
			}
			if kind == tar.TypeReg {
				h.Size, h.Linkname = 5, ""
			}
			if err := w.WriteHeader(h); err != nil {
				f.Fatal(err)
			}
			if kind == tar.TypeReg {
				if _, err := io.WriteString(w, "hello"); err != nil {
					f.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		seeds = append(seeds, raw.Bytes())
	}
	return append(seeds, nil, []byte("no tar"), make([]byte, 1024))
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
