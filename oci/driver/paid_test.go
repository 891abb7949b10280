package driver

import (
	"bytes"
	"testing"

	"github.com/podd-project/podd/cmd/budget"
)

// TestPaidByMemory: while the budget is used up, a command still keeps its first 64 KiB, and the result says that it
// is short. What was written is a prefix: later room does not make a gap.
func TestPaidByMemory(t *testing.T) {
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
