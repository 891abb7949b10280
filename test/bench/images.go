package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"

	"github.com/podd-project/podd/test/images"
)

// The image whose pull is measured: as many layers as a large application has, of incompressible bytes.
const (
	manyLayers     = "registry.test/many-layers:1"
	layers         = 40
	bytesPerLayer  = 1 << 20
	refNameInIndex = "org.opencontainers.image.ref.name"
)

// imageSource is a registry with the test images and manyLayers.
type imageSource struct {
	dir      string
	registry *images.Registry
}

func serveImages(ctx context.Context) (*imageSource, error) {
	built, err := images.Build(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(string(built)), "bench-")
	if err != nil {
		return nil, err
	}
	s := &imageSource{dir: dir}
	// Hard links: no file is written to again, except index.json, which is replaced.
	if err := exec.CommandContext(ctx, "cp", "-al", string(built)+"/.", dir).Run(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if err := s.addManyLayers(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if s.registry, err = images.Listen(layout.Path(dir), "127.0.0.1:0"); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *imageSource) addManyLayers() error {
	image, err := random.Image(bytesPerLayer, layers)
	if err != nil {
		return err
	}
	index := filepath.Join(s.dir, "index.json")
	data, err := os.ReadFile(index)
	if err != nil {
		return err
	}
	if err := errors.Join(os.Remove(index), os.WriteFile(index, data, 0o644)); err != nil { // no longer a link
		return err
	}
	return layout.Path(s.dir).AppendImage(image,
		layout.WithAnnotations(map[string]string{refNameInIndex: "many-layers:1"}))
}

func (s *imageSource) close() error {
	var err error
	if s.registry != nil {
		err = s.registry.Close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
