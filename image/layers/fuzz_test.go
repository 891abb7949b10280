package layers

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"testing"
)

// FuzzLayer unpacks any bytes. If that succeeds, they can be reassembled as they are.
func FuzzLayer(f *testing.F) {
	for _, seed := range layerSeeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := unpackBlob(t, raw, raw)
		if err != nil {
			return
		}
		checkReassembled(t, s, raw)
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
