package network

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// syncing is a network whose plugins run before a record has been synced.
type syncing struct {
	*CNI
	request Request
	// started and ended count the syncs.
	started, ended atomic.Int32
}

// newSyncing returns a network whose syncs end with an error after ADD has run, with another.
func newSyncing(t *testing.T, synced, added error) *syncing {
	t.Helper()
	s := &syncing{request: Request{PodID: "pod1", Netns: pinnedNetns(t)}}
	ran := make(chan struct{})
	cfg := testConfig(t)
	write(t, filepath.Join(cfg.ConfDir, "10-net.conflist"), fakeConf("1.0.0", "net"))
	s.CNI = newFakeCNI(t, cfg, func(_ context.Context, command string, _ []byte) ([]byte, error) {
		if command != "ADD" {
			return nil, nil
		}
		if _, err := s.readRecord("pod1"); err != nil {
			t.Errorf("record when ADD runs = %v, want it written", err)
		}
		close(ran)
		return []byte(`{"ips":[{"address":"10.0.0.2/24"}]}`), added
	})
	s.sync = func(path string) error {
		s.started.Add(1)
		<-ran
		time.Sleep(20 * time.Millisecond) // a slow disk
		s.ended.Add(1)
		return synced
	}
	return s
}

// pinnedNetns returns the path of a network namespace.
func pinnedNetns(t testing.TB) string {
	t.Helper()
	ns, done, err := newDummyNetns(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer done() // the mount keeps the namespace
	path := filepath.Join(t.TempDir(), "netns")
	write(t, path, "")
	if err := unix.Mount(ns, path, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, 0); err != nil {
			t.Error(err)
		}
	})
	return path
}

// TestRecordIsSyncedDuringADD: plugins do not wait for the sync of the record, and Setup does, whether it fails or not.
func TestRecordIsSyncedDuringADD(t *testing.T) {
	broken := errors.New("boom")
	for name, test := range map[string]struct {
		synced, added, want error
		syncs               int32
	}{
		"success":      {nil, nil, nil, 2}, // also of the result
		"sync fails":   {unix.EIO, nil, unix.EIO, 2},
		"plugin fails": {nil, broken, broken, 2}, // also of the failure
		"both fail":    {unix.EIO, broken, broken, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSyncing(t, test.synced, test.added)
			if _, err := s.Setup(t.Context(), s.request); !errors.Is(err, test.want) {
				t.Errorf("Setup = %v, want %v", err, test.want)
			}
			if started, ended := s.started.Load(), s.ended.Load(); started != test.syncs || ended != started {
				t.Errorf("%d of %d syncs ended before Setup, want %d", ended, started, test.syncs)
			}
			if _, err := s.readRecord("pod1"); err != nil {
				t.Errorf("record after Setup = %v, want it there for Teardown", err)
			}
			if err := s.Teardown(t.Context(), "pod1"); err != nil {
				t.Errorf("Teardown = %v, want nil", err)
			}
		})
	}
}

// BenchmarkSync measures how much longer Setup takes than its plugins, which sleep for 30 ms and then 5 ms each. Run it
// with test/bench/journal.sh, and with TMPDIR on a tmpfs for the time without syncs.
func BenchmarkSync(b *testing.B) {
	for _, plugins := range []int{1, 3} {
		b.Run(fmt.Sprintf("plugins=%d", plugins), func(b *testing.B) {
			cfg, netns := testConfig(b), pinnedNetns(b)
			list := strings.TrimSuffix(strings.Repeat(`{"type":"fake"},`, plugins), ",")
			write(b, filepath.Join(cfg.ConfDir, "10-net.conflist"),
				`{"cniVersion":"1.0.0","name":"net","plugins":[`+list+`]}`)
			var took []time.Duration
			rest := 30 * time.Millisecond
			c := newFakeCNI(b, cfg, func(_ context.Context, command string, _ []byte) ([]byte, error) {
				if command == "ADD" {
					time.Sleep(rest)
					rest = 5 * time.Millisecond
				}
				return []byte(`{"ips":[{"address":"10.0.0.2/24"}]}`), nil
			})
			for b.Loop() {
				begun := time.Now()
				_, err := c.Setup(b.Context(), Request{PodID: "pod1", Netns: netns})
				took = append(took, time.Since(begun))
				rest = 30 * time.Millisecond
				if err = errors.Join(err, c.Teardown(b.Context(), "pod1")); err != nil {
					b.Fatal(err)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/4].Microseconds())/1000, "p25-ms")
		})
	}
}
