package server

import (
	"iter"

	"google.golang.org/protobuf/proto"
)

// batchBytes is the maximum size of a streamed message, in bytes; a larger item is sent alone. It is small compared to
// the 16 MiB that clients accept, and large compared to the overhead of a message.
const batchBytes = 1 << 20

// sendBatches sends items in messages of at most batchBytes while they are produced: it holds no more than one message.
func sendBatches[T proto.Message](items iter.Seq[T], send func([]T) error) error {
	var (
		batch []T
		size  int
	)
	for item := range items {
		n := proto.Size(item)
		if len(batch) > 0 && size+n > batchBytes {
			if err := send(batch); err != nil {
				return err
			}
			batch, size = nil, 0 // the transport may still read the old slice
		}
		batch, size = append(batch, item), size+n
	}
	if len(batch) == 0 {
		return nil // the CRI forbids a message without an item
	}
	return send(batch)
}
