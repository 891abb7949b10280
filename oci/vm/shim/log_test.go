package shim

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
)

// TestGuestCannotFillTheLog: responses with unknown stream ids are logged one by one; a guest that floods the shim with
// them does not fill the run directory.
func TestGuestCannotFillTheLog(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	before := log.L.Logger.Out
	defer log.L.Logger.SetOutput(before)
	BoundLog(f)
	host, guest := net.Pipe()
	client := ttrpc.NewClient(host)
	answer := []byte{0, 0, 0, 0, 0, 0, 0, 99, 2, 0} // no content, call 99
	flood := strings.Repeat(string(answer), 1000)
	for range 10 {
		if _, err := io.WriteString(guest, flood); err != nil {
			t.Fatal(err)
		}
	}
	_ = guest.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := client.UserOnCloseWait(ctx); err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() == 0 || info.Size() > logLimit {
		t.Errorf("the log has %d bytes, want some and at most %d", info.Size(), logLimit)
	}
}

// TestFullLogBeginsAnew: the newest message is there, also one that is longer than the log.
func TestFullLogBeginsAnew(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := newBoundedLog(f)
	for _, message := range []string{strings.Repeat("a", logLimit), "newest", strings.Repeat("b", 2*logLimit)} {
		if _, err := io.WriteString(w, message); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(f.Name())
		if err != nil || !strings.HasPrefix(string(data), message[:min(6, len(message))]) || len(data) > logLimit {
			t.Errorf("after a message of %d bytes the log has %d, %v, want the message", len(message), len(data), err)
		}
	}
}
