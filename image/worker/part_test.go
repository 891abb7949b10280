package worker

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
)

// TestPartIsCompared: podd does not believe the process that sends a part. The end is read also after the last byte
// that the limit allows.
func TestPartIsCompared(t *testing.T) {
	blob := Part{Digest: digest.FromString("content"), Size: 7, Limit: 7}
	unpacked := Part{Digest: digest.FromString("packed"), Size: 6, Limit: 7, Unpack: true}
	for name, c := range map[string]struct {
		part Part
		sent string
		is   func(error) bool
		most int
	}{
		"blob":               {blob, "content", func(err error) bool { return err == nil }, 7},
		"changed blob":       {blob, "CONTENT", errdefs.IsDataLoss, 7},
		"short blob":         {blob, "conten", errdefs.IsDataLoss, 7},
		"no blob":            {blob, "", errdefs.IsDataLoss, 7},
		"long blob":          {blob, "contents" + strings.Repeat("x", 1<<20), errdefs.IsDataLoss, 8},
		"unpacked blob":      {unpacked, "content", func(err error) bool { return err == nil }, 7},
		"long unpacked blob": {unpacked, strings.Repeat("x", 1<<20), errdefs.IsResourceExhausted, 8},
		"manifest":           {Part{Limit: 7}, "content", func(err error) bool { return err == nil }, 7},
		"long manifest":      {Part{Limit: 7}, strings.Repeat("x", 1<<20), errdefs.IsResourceExhausted, 8},
	} {
		var got bytes.Buffer
		if err := c.part.copy(&got, strings.NewReader(c.sent)); !c.is(err) || got.Len() > c.most {
			t.Errorf("%s: %d bytes, %v, want at most %d and another error", name, got.Len(), err, c.most)
		}
		err := c.part.copy(&got, iotest.DataErrReader(strings.NewReader(c.sent))) // the end comes with the last byte
		if !c.is(err) {
			t.Errorf("%s, with its end: %v, want another error", name, err)
		}
	}
	lost := errors.New("lost")
	if err := blob.copy(&bytes.Buffer{}, iotest.ErrReader(lost)); !errors.Is(err, lost) {
		t.Errorf("a pipe that fails = %v, want its error", err)
	}
}
