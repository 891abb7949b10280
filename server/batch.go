package server

import (
	"iter"

	"google.golang.org/protobuf/proto"
)

// batchBytes is how large a streamed message may get, in bytes; a single larger item goes alone. Small against the
// 16 MiB that clients accept, large against the cost of a message.
const batchBytes = 1 << 20

// sendBatches sends items in messages bounded by bytes while they are produced: no more than one message's worth
// is held.
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
			batch, size = nil, 0 // a new slice: the transport may still read the old one
		}
		batch, size = append(batch, item), size+n
	}
	if len(batch) == 0 {
		return nil // the proto wants no message without an item
	}
	return send(batch)
}
