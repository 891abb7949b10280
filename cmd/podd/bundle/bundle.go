// Package bundle writes an archive for a report about a problem: a gzip-compressed tar of texts and profiles, without
// secrets as far as it can know them.
//
// It owns the archive's form, its limits and the removal of secrets from texts. The contents come from the caller. Only
// podd's command line calls it.
package bundle

import (
	"context"
	"fmt"
	"io"
	"time"
)

// maxItem bounds one item, in bytes before compression. Of a longer text the end is kept: the newest lines of a log.
const maxItem = 4 << 20

// maxBundle bounds an archive, in bytes: it is sent by mail or attached to an issue. Items for which there may be no
// room are left out.
const maxBundle = 10 << 20

// collectTimeout bounds collecting, of all items together: a part of the node that hangs is often the reason for the
// report.
const collectTimeout = 30 * time.Second

// Item is one file of a bundle.
type Item struct {
	// Name is its path in the archive.
	Name string
	// Collect returns its content. An error becomes the content of a file Name.error.
	Collect func(ctx context.Context) ([]byte, error)
	// Binary content is not searched for secrets: profiles, which have none.
	Binary bool
}

// Write collects the items, all at the same time, and writes them in turn below a directory of that name. It returns an
// error only if w fails or ctx ends.
func Write(ctx context.Context, w io.Writer, dir string, s *Scrubber, items []Item) error {
	out := newArchive(w, dir)
	collecting, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	var results []<-chan result
	for _, item := range items {
		results = append(results, item.start(collecting))
	}
	for i, item := range items {
		r := await(collecting, results[i])
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		name, content := item.file(r, s)
		if err := out.add(name, content); err != nil {
			return fmt.Errorf("write bundle: %w", err)
		}
	}
	return out.close()
}

// result is what an item has collected.
type result struct {
	content []byte
	err     error
}

// start collects the item in a goroutine, which may outlive the bundle: a file may be on a volume that does not answer.
func (i Item) start(ctx context.Context) <-chan result {
	done := make(chan result, 1)
	go func() {
		content, err := i.Collect(ctx)
		done <- result{content, err}
	}()
	return done
}

// await waits for an item until ctx ends.
func await(ctx context.Context, done <-chan result) result {
	select {
	case r := <-done:
		return r
	default:
	}
	select {
	case r := <-done:
		return r
	case <-ctx.Done():
		return result{err: fmt.Errorf("not collected within %v", collectTimeout)}
	}
}

// file returns the name and the content of the item's file.
func (i Item) file(r result, s *Scrubber) (name string, content []byte) {
	if r.err != nil {
		return i.Name + ".error", s.Scrub([]byte(r.err.Error() + "\n"))
	}
	if len(r.content) > maxItem {
		if i.Binary {
			return i.Name + ".error", fmt.Appendf(nil, "has %d bytes, more than %d\n", len(r.content), maxItem)
		}
		r.content = r.content[len(r.content)-maxItem:]
	}
	if i.Binary {
		return i.Name, r.content
	}
	return i.Name, s.Scrub(r.content)
}
