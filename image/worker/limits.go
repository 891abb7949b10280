package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/manifest"
)

// Limits of an image. Who may name an image in a pod chooses these values; without limits, the node would keep
// megabytes of each image in memory, and send all of them in every list.
const (
	// MaxBlob bounds a manifest and a configuration, in bytes.
	MaxBlob = 4 << 20
	// maxConfig bounds the part of a configuration that is kept in memory (v1.ImageConfig), in bytes of JSON.
	maxConfig = 256 << 10
	// maxConfigEntries bounds each list and map of a configuration: environment, volumes, labels, ports, arguments.
	maxConfigEntries = 1000
	// maxUser bounds the user of a configuration, in bytes. Every list of images has it.
	maxUser = 256
	// maxPath bounds the paths of a configuration (volumes, working directory), in bytes: PATH_MAX.
	maxPath = 4096
	// maxPathDepth bounds the components of these paths: each is a directory to make and to remove.
	maxPathDepth = 64
	// maxAnnotations bounds the annotations that are kept of an image, in bytes. If it has more, none is kept.
	maxAnnotations = 64 << 10
)

// CheckConfig returns an error that names what to change, errdefs.ErrInvalidArgument, if a configuration exceeds the
// limits. Its text is bounded too.
func CheckConfig(c *v1.ImageConfig) error {
	if len(c.User) > maxUser {
		return tooLarge("the user has %d bytes, at most %d are allowed", len(c.User), maxUser)
	}
	for _, l := range []struct {
		what string
		n    int
	}{
		{"environment variables", len(c.Env)}, {"volumes", len(c.Volumes)}, {"labels", len(c.Labels)},
		{"ports", len(c.ExposedPorts)}, {"arguments", len(c.Entrypoint) + len(c.Cmd)},
	} {
		if l.n > maxConfigEntries {
			return tooLarge("it has %d %s, at most %d are allowed", l.n, l.what, maxConfigEntries)
		}
	}
	if err := checkPath("working directory", c.WorkingDir); err != nil {
		return err
	}
	for _, v := range slices.Sorted(maps.Keys(c.Volumes)) {
		if err := checkPath("volume", v); err != nil {
			return err
		}
	}
	kept, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("image configuration: %w", err)
	}
	if len(kept) > maxConfig {
		return tooLarge("environment, command, labels etc. have %d bytes, at most %d are allowed", len(kept), maxConfig)
	}
	return nil
}

// checkText fails for a configuration with bytes that are not UTF-8, which a decoder of JSON replaces.
func checkText(config []byte) error {
	rest := config
	for len(rest) > 0 {
		r, n := utf8.DecodeRune(rest)
		if r == utf8.RuneError && n == 1 {
			valid := config[:len(config)-len(rest)]
			name, _, _ := bytes.Cut(valid[bytes.LastIndexByte(valid, '"')+1:], []byte("="))
			return fmt.Errorf("image configuration: the text that begins with %.100q is not UTF-8: build the image again: %w",
				name, errdefs.ErrInvalidArgument)
		}
		rest = rest[n:]
	}
	return nil
}

func checkPath(what, path string) error {
	if len(path) > maxPath {
		return tooLarge("the path of a %s has %d bytes, at most %d are allowed", what, len(path), maxPath)
	}
	if n := strings.Count(path, "/"); n > maxPathDepth {
		return tooLarge("the path of a %s has %d slashes, at most %d are allowed", what, n, maxPathDepth)
	}
	return nil
}

func tooLarge(format string, args ...any) error {
	return fmt.Errorf("image configuration: %s: %w", fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
}

// boundedAnnotations returns annotations, or nil if they exceed the limit.
func boundedAnnotations(annotations map[string]string) map[string]string {
	bytes := 0
	for key, value := range annotations {
		bytes += len(key) + len(value)
	}
	if bytes > maxAnnotations {
		return nil
	}
	return annotations
}

// Annotations returns the annotations of a manifest, or nil if they exceed the limit.
func Annotations(man manifest.Manifest) map[string]string {
	if oci, ok := man.(*manifest.OCI1); ok {
		return boundedAnnotations(oci.Annotations)
	}
	return nil
}
