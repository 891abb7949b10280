package layers

import (
	"bufio"
	"encoding/binary"
	"io"

	"github.com/klauspost/compress/zstd"
	"go.podman.io/storage/pkg/archive"
)

// Decompress returns the tar of a blob, whatever its compression.
func Decompress(blob io.Reader) (io.ReadCloser, error) {
	in := bufio.NewReader(blob)
	// The library looks for a frame of data, but pzstd begins with a skippable one (RFC 8878, 3.1.2).
	const skippable, last = 0x184D2A50, 0xf
	magic, err := in.Peek(4)
	if err != nil || binary.LittleEndian.Uint32(magic)&^last != skippable {
		return archive.DecompressStream(in)
	}
	frames, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	return frames.IOReadCloser(), nil
}
