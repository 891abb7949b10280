package server

import (
	"slices"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
)

// encodings remembers the protobuf encoding of the part of each list item that seldom changes: encoding labels and
// annotations is nearly all of a list's cost, and the kubelet lists every second. A message's encoding is the
// concatenation of its fields', so what is remembered goes into an item as "unknown fields", which are sent as they
// are. It may be used by many goroutines; each works on a round of its own, and the last to finish is remembered.
type encodings[R any] struct {
	last atomic.Pointer[map[*R]encoding]
}

// encoding is valid as long as version is the same. The record it belongs to is known by its address: records are
// never changed.
type encoding struct {
	version any
	text    []byte
}

// round is one walk over all records.
type round[R any] struct {
	all       *encodings[R]
	old, seen map[*R]encoding
}

func (e *encodings[R]) round() round[R] {
	r := round[R]{all: e}
	if last := e.last.Load(); last != nil {
		r.old = *last
	}
	r.seen = make(map[*R]encoding, len(r.old))
	return r
}

// of returns the encoding of what part returns for this version of the record; nil when it cannot be encoded.
func (r round[R]) of(record *R, version any, part func() proto.Message) []byte {
	e, ok := r.old[record]
	if !ok || e.version != version {
		e = encoding{version: version}
		if text, err := proto.Marshal(part()); err == nil {
			e.text = slices.Clip(text)
		}
	}
	r.seen[record] = e
	return e.text
}

// done forgets the records that this round has not come by: they are gone.
func (r round[R]) done() { r.all.last.Store(&r.seen) }
