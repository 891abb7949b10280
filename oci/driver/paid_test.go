package driver

import (
	"bytes"
	"errors"
	"testing"

	"github.com/podd-project/podd/oci"
)

// TestPaidByMemory: while the budget is used up, a command still keeps its first 64 KiB, and the result says that it
// is short. What was written is a prefix: later room does not make a gap.
func TestPaidByMemory(t *testing.T) {
	room := int64(1 << 20)
	grow := func(n int64) error {
		if n > room {
			return errors.New("used up")
		}
		room -= n
		return nil
	}
	text := bytes.Repeat([]byte("0123456789abcdef"), 8<<10) // 128 KiB
	free := newPaid(1<<20, grow)
	free.Write(text)
	if !bytes.Equal(free.Bytes(), text) || free.short {
		t.Errorf("with room: kept %d bytes, short = %v, want %d, false", len(free.Bytes()), free.short, len(text))
	}
	if want := int64(1<<20 - 64<<10); room != want {
		t.Errorf("room after 128 KiB = %d, want %d: the first 64 KiB are free", room, want)
	}
	room = 0
	tight := newPaid(1<<20, grow)
	tight.Write(text[:oci.FreeOutput/2])
	tight.Write(text[oci.FreeOutput/2:])
	room = 1 << 20
	tight.Write(text)
	if !bytes.Equal(tight.Bytes(), text[:oci.FreeOutput]) || !tight.short {
		t.Errorf("without room: kept %d bytes, short = %v, want the first %d, true",
			len(tight.Bytes()), tight.short, oci.FreeOutput)
	}
	capped := newPaid(100, grow)
	capped.Write(text)
	if !bytes.Equal(capped.Bytes(), text[:100]) || capped.short {
		t.Errorf("limit of 100: kept %d bytes, short = %v, want 100, false", len(capped.Bytes()), capped.short)
	}
}
