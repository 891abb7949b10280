package driver

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/podd-project/podd/cmd/budget"
)

// TestCappedByMemory: while the budget is used up, a command still keeps its first 64 KiB, and the result says that it
// is short. What was written is a prefix: later room does not make a gap.
func TestCappedByMemory(t *testing.T) {
	pool := budget.New().ExecOutput
	text := bytes.Repeat([]byte("0123456789abcdef"), 8<<10) // 128 KiB
	free := newPaid(1<<20, pool.Open("a"))
	free.Write(text)
	if !bytes.Equal(free.Bytes(), text) || free.short {
		t.Errorf("with room: kept %d bytes, short = %v, want %d, false", len(free.Bytes()), free.short, len(text))
	}
	all, err := pool.Try("b", 32<<20)
	if err != nil {
		t.Fatal(err)
	}
	tight := newPaid(1<<20, pool.Open("b"))
	tight.Write(text[:budget.ExecOutputFree/2])
	tight.Write(text[budget.ExecOutputFree/2:])
	all.Release()
	tight.Write(text)
	if !bytes.Equal(tight.Bytes(), text[:budget.ExecOutputFree]) || !tight.short {
		t.Errorf("without room: kept %d bytes, short = %v, want the first %d, true",
			len(tight.Bytes()), tight.short, budget.ExecOutputFree)
	}
	capped := newPaid(100, pool.Open("c"))
	capped.Write(text)
	if !bytes.Equal(capped.Bytes(), text[:100]) || capped.short {
		t.Errorf("limit of 100: kept %d bytes, short = %v, want 100, false", len(capped.Bytes()), capped.short)
	}
}

// TestCappedReadsInSmallPieces: a copy to the buffer, as os/exec makes it, has the same limit, and needs little memory.
func TestCappedReadsInSmallPieces(t *testing.T) {
	c := NewCapped(5)
	in := &readSizes{Reader: strings.NewReader(strings.Repeat("x", 3*pipePiece))}
	if n, err := io.Copy(c, in); n != 3*pipePiece || err != nil || string(c.Bytes()) != "xxxxx" {
		t.Errorf("copied %d bytes, %v, kept %q, want %d, none, xxxxx", n, err, c.Bytes(), 3*pipePiece)
	}
	if in.largest != pipePiece {
		t.Errorf("the copy reads with a buffer of %d bytes, want %d", in.largest, pipePiece)
	}
}

// readSizes is a reader that notes the largest buffer it was given, in bytes.
type readSizes struct {
	io.Reader
	largest int
}

func (r *readSizes) Read(p []byte) (int, error) {
	r.largest = max(r.largest, len(p))
	return r.Reader.Read(p)
}
