package server

import (
	"slices"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
)

// listCache caches the protobuf encoding of the part of each list item that rarely changes. Encoding labels and
// annotations is most of the cost of a list, and the kubelet lists every second. The encoding of a message is the
// concatenation of the encodings of its fields, so the cached bytes are put into an item as unknown fields, which
// protobuf sends unchanged. It is safe for concurrent use: each list works on a separate pass, and the last pass to
// finish replaces the cache.
type listCache[R any] struct {
	last atomic.Pointer[map[*R]cachedItem]
}

// cachedItem is valid as long as version is the same. Records are immutable, so a record's address is its key.
type cachedItem struct {
	version any
	encoded []byte
}

// listPass is one walk over all records.
type listPass[R any] struct {
	cache     *listCache[R]
	old, seen map[*R]cachedItem
}

func (c *listCache[R]) newPass() listPass[R] {
	p := listPass[R]{cache: c}
	if last := c.last.Load(); last != nil {
		p.old = *last
	}
	p.seen = make(map[*R]cachedItem, len(p.old))
	return p
}

// encode returns the encoding of the message that build returns for this version of the record, nil when it cannot be
// encoded.
func (p listPass[R]) encode(record *R, version any, build func() proto.Message) []byte {
	item, ok := p.old[record]
	if !ok || item.version != version {
		item = cachedItem{version: version}
		if encoded, err := proto.Marshal(build()); err == nil {
			item.encoded = slices.Clip(encoded)
		}
	}
	p.seen[record] = item
	return item.encoded
}

// commit replaces the cache with what this pass has seen, which drops removed records.
func (p listPass[R]) commit() { p.cache.last.Store(&p.seen) }
