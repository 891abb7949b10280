package snapshot

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/zstd"
)

// parts are the blobs of a checkpoint by name, as a registry keeps them.
type parts map[string][]byte

// open implements Opener.
func (p parts) open(_ context.Context, name string, limit int64) (io.ReadCloser, error) {
	data, ok := p[name]
	switch {
	case !ok:
		return nil, fmt.Errorf("no %s: %w", name, errdefs.ErrNotFound)
	case int64(len(data)) > limit:
		return nil, fmt.Errorf("%s: %w", name, errdefs.ErrResourceExhausted)
	}
	if name == imagesName {
		z, err := zstd.NewReader(bytes.NewReader(data))
		return z.IOReadCloser(), err
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// packed returns the parts of the checkpoint in dir.
func packed(t testing.TB, dir string) parts {
	t.Helper()
	s, err := Inspect(dir)
	must(t, err)
	blobs, err := s.Blobs(t.Context())
	must(t, err)
	p := parts{}
	for _, b := range blobs {
		var data bytes.Buffer
		must(t, b.Write(&data))
		p[b.Name] = data.Bytes()
	}
	return p
}

// TestTransfer: what is received is what was packed, byte by byte, and is trusted like it.
func TestTransfer(t *testing.T) {
	dir, public := signed(t)
	to := output(t)
	trust := Trust{Key: newKey(t), PublicKeys: []string{public}}
	must(t, Receive(t.Context(), to, trust, packed(t, dir).open))
	if got, want := files(t, to), files(t, dir); !slices.Equal(got, want) {
		t.Errorf("received files = %q, want %q", got, want)
	}
	s, err := Open(to, trust)
	must(t, err)
	must(t, s.Verify(t.Context()))

	dir, key := output(t), newKey(t) // sealed, of gVisor
	write(t, dir, key)
	must(t, Receive(t.Context(), output(t), Trust{Key: key}, packed(t, dir).open))
	must(t, Receive(t.Context(), output(t), Trust{Key: newKey(t), Foreign: true}, packed(t, dir).open))
}

// archiveOf returns a compressed archive.
func archiveOf(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var data bytes.Buffer
	z, err := zstd.NewWriter(&data)
	must(t, err)
	w := tar.NewWriter(z)
	for _, h := range headers {
		must(t, w.WriteHeader(&h))
		_, err := w.Write(bytes.Repeat([]byte(filepath.Base(h.Name)), 1000)[:h.Size])
		must(t, err)
	}
	must(t, w.Close())
	must(t, z.Close())
	return data.Bytes()
}

// TestHostileTransfer changes what a registry sends. Each change is refused, and nothing is left.
func TestHostileTransfer(t *testing.T) {
	var all []tar.Header // as write makes the images
	for _, name := range imageFiles() {
		all = append(all, tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(1000 * len(name))})
	}
	change := func(f func(h *tar.Header)) []byte {
		changed := slices.Clone(all)
		f(&changed[0])
		return archiveOf(t, changed...)
	}
	for name, tt := range map[string]struct {
		spoil func(p parts)
		is    func(error) bool
	}{
		"no manifest":    {func(p parts) { delete(p, manifestName) }, errdefs.IsNotFound},
		"huge manifest":  {func(p parts) { p[manifestName] = make([]byte, MaxManifest+1) }, errdefs.IsResourceExhausted},
		"no seal":        {func(p parts) { delete(p, sealName) }, errdefs.IsPermissionDenied},
		"another seal":   {func(p parts) { p[sealName][0] ^= 1 }, errdefs.IsPermissionDenied},
		"long seal":      {func(p parts) { p[sealName] = make([]byte, maxSeal+1) }, errdefs.IsResourceExhausted},
		"long signature": {func(p parts) { p[signatureName] = make([]byte, maxSignature+1) }, errdefs.IsResourceExhausted},
		"manifest changed": {func(p parts) { p[manifestName] = append(p[manifestName], '\n') },
			errdefs.IsPermissionDenied},
		"no images": {func(p parts) { delete(p, imagesName) }, errdefs.IsNotFound},
		"images are too large": {func(p parts) { p[imagesName] = make([]byte, 4<<20) },
			errdefs.IsResourceExhausted},
		"images are no archive": {func(p parts) { p[imagesName] = []byte("none") }, isAny},
		"images are empty":      {func(p parts) { p[imagesName] = archiveOf(t) }, errdefs.IsDataLoss},
		"images are cut off":    {func(p parts) { p[imagesName] = p[imagesName][:len(p[imagesName])/2] }, isAny},
		"other content":         {func(p parts) { p[imagesName] = archiveOf(t, all[0], all[0], all[2]) }, errdefs.IsDataLoss},
		"a link": {func(p parts) {
			p[imagesName] = change(func(h *tar.Header) { h.Typeflag, h.Size, h.Linkname = tar.TypeSymlink, 0, "/etc/passwd" })
		}, errdefs.IsDataLoss},
		"a FIFO": {func(p parts) {
			p[imagesName] = change(func(h *tar.Header) { h.Typeflag, h.Size = tar.TypeFifo, 0 })
		}, errdefs.IsDataLoss},
		"a path outside": {func(p parts) {
			p[imagesName] = change(func(h *tar.Header) { h.Name = "../checkpoint.img" })
		}, errdefs.IsDataLoss},
		"another size": {func(p parts) { p[imagesName] = change(func(h *tar.Header) { h.Size = 1 }) }, errdefs.IsDataLoss},
	} {
		dir, to, key := output(t), output(t), newKey(t)
		write(t, dir, key)
		p := packed(t, dir)
		p[imagesName] = archiveOf(t, all...)
		must(t, Receive(t.Context(), output(t), Trust{Key: key}, p.open))
		tt.spoil(p)
		if err := Receive(t.Context(), to, Trust{Key: key}, p.open); !tt.is(err) {
			t.Errorf("%s: Receive = %v, want an error of another kind", name, err)
		}
		if left := files(t, to); len(left) > 0 {
			t.Errorf("%s: left %q, want nothing", name, left)
		}
	}
}

// TestReceiveInto: files that exist are not overwritten.
func TestReceiveInto(t *testing.T) {
	dir, key := output(t), newKey(t)
	write(t, dir, key)
	to := output(t)
	must(t, os.WriteFile(filepath.Join(to, "manifest.json"), []byte("mine"), 0o600))
	err := Receive(t.Context(), to, Trust{Key: key}, packed(t, dir).open)
	if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("Receive into a directory with files = %v, want %v", err, errdefs.ErrInvalidArgument)
	}
	if data, err := os.ReadFile(filepath.Join(to, "manifest.json")); err != nil || string(data) != "mine" {
		t.Errorf("file that was there = %q, %v, want it unchanged", data, err)
	}
}

// TestReceiveReadsToTheEnd: a blob that differs from its digest, which only its end says, is refused, although all
// images were unpacked.
func TestReceiveReadsToTheEnd(t *testing.T) {
	dir, to, key := output(t), output(t), newKey(t)
	write(t, dir, key)
	p := packed(t, dir)
	changed := func(ctx context.Context, name string, limit int64) (io.ReadCloser, error) {
		r, err := p.open(ctx, name, limit)
		if name == imagesName {
			more := io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), iotest.ErrReader(errdefs.ErrDataLoss))
			r = io.NopCloser(io.MultiReader(r, more))
		}
		return r, err
	}
	if err := Receive(t.Context(), to, Trust{Key: key}, changed); !errdefs.IsDataLoss(err) {
		t.Errorf("Receive = %v, want %v", err, errdefs.ErrDataLoss)
	}
	if left := files(t, to); len(left) > 0 {
		t.Errorf("left %q, want nothing", left)
	}
}

// TestPackOfChanged: an image that was changed after the checkpoint does not travel.
func TestPackOfChanged(t *testing.T) {
	dir, key := output(t), newKey(t)
	write(t, dir, key)
	must(t, os.WriteFile(filepath.Join(dir, "gvisor", "pages.img"), []byte("x"), 0o600))
	s, err := Inspect(dir)
	must(t, err)
	blobs, err := s.Blobs(t.Context())
	must(t, err)
	if err := blobs[len(blobs)-1].Write(io.Discard); !errdefs.IsDataLoss(err) {
		t.Errorf("write images = %v, want %v", err, errdefs.ErrDataLoss)
	}
}
