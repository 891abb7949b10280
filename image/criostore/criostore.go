// Package criostore reads which images CRI-O has, from its files: a directory of containers/storage, as Podman's.
//
// It only reads the list. The images themselves are read in a confined process of the package image. The command line
// uses it, to import images.
package criostore

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"
)

// Bounds of the list: its size in bytes, and how many images it has.
const (
	maxList   = 256 << 20
	maxImages = 100_000
)

// Image is one image, with all of its names, which have a tag or a digest.
type Image struct {
	// ID is the digest of its config, in hex.
	ID    string
	Names []string
	// Manifest is the digest of its manifest, of a list's image for this platform.
	Manifest digest.Digest
}

// Images returns the images of CRI-O's directory root that have names, by the order of their first names.
func Images(root string) ([]Image, error) {
	path := filepath.Join(root, "overlay-images", "images.json")
	raw, err := readList(path)
	if err != nil {
		return nil, fmt.Errorf("read the images of CRI-O: %w", err)
	}
	var list []struct {
		ID     string        `json:"id"`
		Digest digest.Digest `json:"digest"`
		Names  []string      `json:"names"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	if len(list) > maxImages {
		return nil, fmt.Errorf("%s has more than %d images", path, maxImages)
	}
	var images []Image
	for _, e := range list {
		if digest.NewDigestFromEncoded(digest.SHA256, e.ID).Validate() != nil {
			return nil, fmt.Errorf("parse %s: %.70q is not the id of an image", path, e.ID)
		}
		if err := e.Digest.Validate(); err != nil {
			return nil, fmt.Errorf("parse %s: image %s: digest %.80q: %w", path, e.ID, e.Digest, err)
		}
		if len(e.Names) > 0 {
			slices.Sort(e.Names)
			images = append(images, Image{ID: e.ID, Names: e.Names, Manifest: e.Digest})
		}
	}
	slices.SortFunc(images, func(a, b Image) int { return slices.Compare(a.Names, b.Names) })
	return images, nil
}

// readList returns the content of a file of at most maxList bytes.
func readList(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxList+1))
	if err == nil && len(raw) > maxList {
		err = fmt.Errorf("%s has more than %d bytes", path, maxList)
	}
	return raw, err
}
