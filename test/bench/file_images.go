package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// fileLayers are the layers of an image of many files, above those of busybox.
const fileLayers = 8

var fileCompressions = []compression.Compression{compression.GZip, compression.ZStd}

// manyFiles is the name of the image with that number of the layers, compressed in that way.
func manyFiles(how string, layers int) string {
	return fmt.Sprintf("registry.test/many-files:%s-%d", how, layers)
}

// addManyFiles adds the images to the registry.
func (s *imageSource) addManyFiles(files int) error {
	base, err := s.image(busybox)
	if err != nil {
		return err
	}
	lowest, err := base.Layers()
	if err != nil {
		return err
	}
	config, err := base.ConfigFile()
	if err != nil {
		return err
	}
	for _, how := range fileCompressions {
		img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
		if img, err = mutate.Config(img, config.Config); err != nil {
			return err
		}
		var layers []v1.Layer
		for _, l := range lowest {
			again, err := compressed(l.Uncompressed, how)
			if err != nil {
				return err
			}
			layers = append(layers, again)
		}
		for i := range fileLayers {
			l, err := compressed(wordLayer(i, files), how)
			if err != nil {
				return err
			}
			layers = append(layers, l)
			if i < fileLayers-2 {
				continue
			}
			all, err := mutate.AppendLayers(img, layers...)
			if err != nil {
				return err
			}
			if err := s.push(all, manyFiles(string(how), i+1)); err != nil {
				return err
			}
		}
	}
	return nil
}

// image returns an image of the registry, push adds one.
func (s *imageSource) image(ref string) (v1.Image, error) {
	at, err := s.at(ref)
	if err != nil {
		return nil, err
	}
	return remote.Image(at)
}

func (s *imageSource) push(img v1.Image, ref string) error {
	at, err := s.at(ref)
	if err != nil {
		return err
	}
	return remote.Write(at, img)
}

// at returns a name with the registry's address instead of the host.
func (s *imageSource) at(ref string) (name.Reference, error) {
	_, path, _ := strings.Cut(ref, "/")
	return name.ParseReference(s.registry.Addr+"/"+path, name.Insecure)
}

func compressed(open tarball.Opener, how compression.Compression) (v1.Layer, error) {
	kind := types.OCILayer
	if how == compression.ZStd {
		kind = types.OCILayerZStd
	}
	return tarball.LayerFromOpener(open, tarball.WithCompression(how), tarball.WithMediaType(kind),
		tarball.WithCompressedCaching)
}

// wordLayer returns a tar of n files of 100 bytes to 6 KiB, 50 in a directory. They compress to a third.
func wordLayer(seed, n int) tarball.Opener {
	const inDirectory, words, least, span = 50, 4000, 100, 6 << 10
	return func() (io.ReadCloser, error) {
		random := rand.New(rand.NewPCG(uint64(seed), 1)) //nolint:gosec // reproducible
		dictionary := make([]string, words)
		for i := range dictionary {
			dictionary[i] = strconv.FormatUint(random.Uint64N(1<<40), 36)
		}
		var out, text bytes.Buffer
		w := tar.NewWriter(&out)
		for i := range n {
			text.Reset()
			for size := least + random.IntN(span); text.Len() < size; {
				text.WriteString(dictionary[random.IntN(words)] + " ")
			}
			dir := fmt.Sprintf("usr/lib/layer%d/dir%d/", seed, i/inDirectory)
			if i%inDirectory == 0 {
				if err := w.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
					return nil, err
				}
			}
			file := &tar.Header{Name: fmt.Sprint(dir, "file", i), Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(text.Len())}
			if err := w.WriteHeader(file); err != nil {
				return nil, err
			}
			if _, err := w.Write(text.Bytes()); err != nil {
				return nil, err
			}
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		return io.NopCloser(&out), nil
	}
}
