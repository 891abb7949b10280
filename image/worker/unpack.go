package worker

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/podd-project/podd/image/child"
	"github.com/podd-project/podd/image/confine"
	"github.com/podd-project/podd/image/layers"
)

// maxImageFiles bounds the files of an image, in all of its layers.
const maxImageFiles = 4_000_000

// maxUnpackMemory bounds the memory of a process of containers/storage that unpacks or packs one layer, in bytes: a
// container can have made any number of files.
const maxUnpackMemory = 1 << 30

// limitUnpacking restricts a process in which containers/storage unpacks or packs one layer, before it does: a layer is
// repaired, or a container is saved. Those of pulls are unpacked by package layers.
func limitUnpacking() error {
	return errors.Join(confine.DenyNetwork(), child.PreferKilling(),
		confine.LimitMemory(child.HardMemory(maxUnpackMemory)))
}

// unpackMeter counts files and bytes of the layers of one image, which are unpacked concurrently.
type unpackMeter struct {
	bytes, files         atomic.Int64
	mostBytes, mostFiles int64
}

// add counts files, and bytes of content or padding.
func (m *unpackMeter) add(files, bytes int64) error {
	if m.bytes.Add(max(bytes, 0)) > m.mostBytes {
		return fmt.Errorf("%s: more than %d bytes (max_image_bytes)", layers.TooLarge, m.mostBytes)
	}
	if m.files.Add(files) > m.mostFiles {
		return fmt.Errorf("%s: more than %d files", layers.TooLarge, m.mostFiles)
	}
	return nil
}
