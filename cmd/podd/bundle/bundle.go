// Package bundle writes an archive for a report about a problem: a gzip-compressed tar of texts and profiles, without
// secrets as far as it can know them.
//
// It owns the archive's form, limits and what is removed from texts. What is in it comes from the caller. Only podd's
// command line calls it.
package bundle

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"time"
)

// maxItem bounds one item, in bytes before compression. Of a longer text the end is kept: the newest lines of a log.
const maxItem = 4 << 20

// itemTimeout bounds collecting one item: a part of the node that hangs is often the reason for the report.
const itemTimeout = 30 * time.Second

// Item is one file of a bundle.
type Item struct {
	// Name is its path in the archive.
	Name string
	// Collect returns its content. An error becomes the content of a file Name.error.
	Collect func(ctx context.Context) ([]byte, error)
	// Binary content is not searched for secrets: profiles, which have none.
	Binary bool
}

// Write collects the items in turn and writes them below a directory of that name. It returns an error only if w fails
// or ctx ends.
func Write(ctx context.Context, w io.Writer, dir string, s *Scrubber, items []Item) error {
	zipped := gzip.NewWriter(w)
	out := tar.NewWriter(zipped)
	for _, item := range items {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		name, content := item.collect(ctx, s)
		header := &tar.Header{
			Name: path.Join(dir, name), Mode: 0o600, Size: int64(len(content)), ModTime: time.Now().Truncate(time.Second),
			Typeflag: tar.TypeReg, Format: tar.FormatPAX,
		}
		if err := out.WriteHeader(header); err != nil {
			return fmt.Errorf("write bundle: %w", err)
		}
		if _, err := out.Write(content); err != nil {
			return fmt.Errorf("write bundle: %w", err)
		}
	}
	return errors.Join(out.Close(), zipped.Close())
}

// collect returns the name and the content of the item's file.
func (i Item) collect(ctx context.Context, s *Scrubber) (name string, content []byte) {
	type result struct {
		content []byte
		err     error
	}
	ctx, cancel := context.WithTimeout(ctx, itemTimeout)
	defer cancel()
	done := make(chan result, 1)
	go func() { // the file may be on a volume that does not answer
		content, err := i.Collect(ctx)
		done <- result{content, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		r.err = fmt.Errorf("not collected within %v", itemTimeout)
	}
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
