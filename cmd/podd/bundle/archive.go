package bundle

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"time"
)

// reserve is how much of maxBundle each file takes in addition to its content. It is more than tar and gzip need.
const reserve = 4 << 10

// archive is a tar.gz of maxBundle at most, if it has few files.
type archive struct {
	written *counter
	zipped  *gzip.Writer
	tar     *tar.Writer
	dir     string
}

func newArchive(w io.Writer, dir string) *archive {
	written := &counter{Writer: w}
	zipped := gzip.NewWriter(written)
	return &archive{written, zipped, tar.NewWriter(zipped), dir}
}

// add writes a file below the directory, or why it is left out. Content that cannot be compressed takes its whole size.
func (a *archive) add(name string, content []byte) error {
	if a.written.n+len(content)+reserve > maxBundle {
		name, content = name+".error", fmt.Appendf(nil, "left out: a bundle has %d bytes at most\n", maxBundle)
	}
	header := &tar.Header{
		Name: path.Join(a.dir, name), Mode: 0o600, Size: int64(len(content)), ModTime: time.Now().Truncate(time.Second),
		Typeflag: tar.TypeReg, Format: tar.FormatPAX,
	}
	if err := a.tar.WriteHeader(header); err != nil {
		return err
	}
	if _, err := a.tar.Write(content); err != nil {
		return err
	}
	return errors.Join(a.tar.Flush(), a.zipped.Flush()) // so that the bytes are counted
}

func (a *archive) close() error { return errors.Join(a.tar.Close(), a.zipped.Close()) }

// counter counts the bytes that are written.
type counter struct {
	io.Writer
	n int
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n += n
	return n, err
}
