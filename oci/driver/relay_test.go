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
	b, out := newBacklog(0), &bytes.Buffer{}
	data := []byte("one")
	err := errors.Join(b.add(t.Context(), out, data), b.add(t.Context(), nil, []byte("dropped")),
		b.add(t.Context(), out, []byte(" two")))
	if err != nil {
		t.Fatal(err)
	}
	data[0] = 'X' // a copy was taken
	b.finish()
	if err := b.drain(t.Context()); err != nil || out.String() != "one two" {
		t.Errorf("drain = %q, %v, want %q", out, err, "one two")
	}
}

func TestBacklogLimit(t *testing.T) {
	b := newBacklog(0)
	chunk := make([]byte, backlogLimit/4)
	for i := range 5 {
		err := b.add(t.Context(), io.Discard, chunk)
		if (i < 4) != (err == nil) || err != nil && !errors.Is(err, ErrSlowClient) {
			t.Errorf("add of chunk %d of 5 = %v, want %v for the last only", i+1, err, ErrSlowClient)
		}
	}
	if _, ok := b.next(t.Context()); !ok {
		t.Error("next returned nothing, want a chunk")
	}
	if err := b.add(t.Context(), io.Discard, chunk); err != nil {
		t.Errorf("add after one was taken = %v, want nil", err)
	}
}

// TestBacklogWaits: an output with patience waits as long as the client takes something now and then.
func TestBacklogWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBacklog(10 * time.Second)
		chunk := make([]byte, waitingLimit/2)
		go func() {
			for range 5 {
				time.Sleep(9 * time.Second)
				b.next(t.Context())
			}
		}()
		for i := range 8 { // two have room, five are taken
			err := b.add(t.Context(), io.Discard, chunk)
			if (i < 7) != (err == nil) || err != nil && !errors.Is(err, ErrSlowClient) {
				t.Errorf("add of chunk %d = %v, want %v for the last only", i+1, err, ErrSlowClient)
			}
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		if err := b.add(ctx, io.Discard, chunk); !errors.Is(err, gone) {
			t.Errorf("add with an ended context = %v, want %v", err, gone)
		}
	})
}

func TestBacklogContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, gone := newBacklog(0), errors.New("gone")
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
