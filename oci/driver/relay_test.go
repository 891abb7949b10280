package driver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podd-project/podd/oci"
)

func TestBacklog(t *testing.T) {
	b, out := newBacklog(), &bytes.Buffer{}
	data := []byte("one")
	if err := errors.Join(b.add(out, data), b.add(nil, []byte("dropped")), b.add(out, []byte(" two"))); err != nil {
		t.Fatal(err)
	}
	data[0] = 'X' // a copy was taken
	b.finish()
	if err := b.drain(t.Context()); err != nil || out.String() != "one two" {
		t.Errorf("drain = %q, %v, want %q", out, err, "one two")
	}
}

func TestBacklogLimit(t *testing.T) {
	b := newBacklog()
	chunk := make([]byte, backlogLimit/4)
	for i := range 5 {
		err := b.add(io.Discard, chunk)
		if (i < 4) != (err == nil) || err != nil && !errors.Is(err, ErrSlowClient) {
			t.Errorf("add of chunk %d of 5 = %v, want %v for the last only", i+1, err, ErrSlowClient)
		}
	}
	if _, ok := b.next(t.Context()); !ok {
		t.Error("next returned nothing, want a chunk")
	}
	if err := b.add(io.Discard, chunk); err != nil {
		t.Errorf("add after one was taken = %v, want nil", err)
	}
}

func TestBacklogContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, gone := newBacklog(), errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Hour, func() { cancel(gone) })
		if err := b.drain(ctx); !errors.Is(err, gone) {
			t.Errorf("drain = %v, want %v", err, gone)
		}
	})
}

func TestFirstSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if z := FirstSize(nil); z != (oci.Size{}) {
			t.Errorf("FirstSize(nil) = %+v, want zero", z)
		}
		sizes := make(chan oci.Size, 1)
		begin := time.Now()
		if z := FirstSize(sizes); z != (oci.Size{}) || time.Since(begin) != firstSizeTime {
			t.Errorf("FirstSize = %+v after %s, want zero after %s", z, time.Since(begin), firstSizeTime)
		}
		sizes <- oci.Size{Width: 1, Height: 2}
		if z := FirstSize(sizes); z != (oci.Size{Width: 1, Height: 2}) {
			t.Errorf("FirstSize = %+v, want width 1, height 2", z)
		}
		close(sizes)
		if z := FirstSize(sizes); z != (oci.Size{}) {
			t.Errorf("FirstSize of a closed channel = %+v, want zero", z)
		}
	})
}

// TestCopyPipeAfterDeadline: what is in the pipe when the time is up belongs to the output.
func TestCopyPipeAfterDeadline(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close() // held open, as by a child left behind
	want := bytes.Repeat([]byte("x"), 60_000)
	if _, err := w.Write(want); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := CopyOutput(&out, r); err != nil || !bytes.Equal(out.Bytes(), want) {
		t.Errorf("CopyOutput = %d bytes, %v, want %d, nil", out.Len(), err, len(want))
	}
	closed, broken := io.Pipe()
	closed.Close()
	_, _ = w.Write(want)
	if err := CopyOutput(broken, r); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("CopyOutput to a closed pipe = %v, want %v", err, io.ErrClosedPipe)
	}
}
