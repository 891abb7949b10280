package network

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
)

// startHealth runs a health loop in a synctest bubble. status replaces the plugins.
func startHealth(t *testing.T, c *CNI, status func(context.Context, *libcni.NetworkConfigList) error) (stop func()) {
	c.health.status = status
	c.health.readConf()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.health.run(ctx)
	}()
	synctest.Wait()
	return func() {
		cancel()
		<-done
	}
}

func wantReady(t *testing.T, c *CNI, want string) {
	t.Helper()
	err := c.Ready()
	switch {
	case want == "" && err != nil:
		t.Errorf("Ready = %v, want nil", err)
	case want != "" && (!errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), want)):
		t.Errorf("Ready = %v, want unavailable with %q", err, want)
	}
}

func TestReadyFollowsTheConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCNI(t, testConfig(t), nil)
		wantReady(t, c, "has not been read yet")
		defer startHealth(t, c, func(context.Context, *libcni.NetworkConfigList) error {
			t.Error("a network before CNI 1.1 was asked for its status")
			return nil
		})()
		wantReady(t, c, "no CNI configuration in")
		file := filepath.Join(c.cfg().ConfDir, "10.conflist")
		write(t, file, fakeConf("1.0.0", "a"))
		wantReady(t, c, "no CNI configuration in") // from memory
		time.Sleep(statusInterval)
		synctest.Wait()
		wantReady(t, c, "")
		write(t, file, "{")
		c.health.wake()
		time.Sleep(debounceTime)
		synctest.Wait()
		wantReady(t, c, "10.conflist: unexpected end")
		write(t, file, `{"cniVersion":"1.0.0","name":"b","plugins":[{"type":"fake","ipam":{"type":"absent"}}]}`)
		c.health.wake()
		time.Sleep(debounceTime)
		synctest.Wait()
		wantReady(t, c, `"absent" is not in`)
	})
}

func TestReadyAsksPluginsInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCNI(t, testConfig(t), nil)
		write(t, filepath.Join(c.cfg().ConfDir, "10.conflist"), fakeConf("1.1.0", "a"))
		answer := make(chan error)
		defer startHealth(t, c, func(ctx context.Context, _ *libcni.NetworkConfigList) error {
			select {
			case err := <-answer:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})()
		wantReady(t, c, "has not been checked yet")
		answer <- nil
		synctest.Wait()
		wantReady(t, c, "")
		time.Sleep(statusInterval)
		synctest.Wait()
		wantReady(t, c, "") // the answer before counts while the plugin thinks
		answer <- errors.New("datastore is down")
		synctest.Wait()
		wantReady(t, c, "CNI network a: datastore is down")
		time.Sleep(statusInterval)
		answer <- nil
		synctest.Wait()
		wantReady(t, c, "")
	})
}

// TestChangeInterruptsAHangingStatus: a new configuration does not wait for the old one's plugins.
func TestChangeInterruptsAHangingStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCNI(t, testConfig(t), nil)
		write(t, filepath.Join(c.cfg().ConfDir, "20.conflist"), fakeConf("1.1.0", "old"))
		defer startHealth(t, c, func(ctx context.Context, l *libcni.NetworkConfigList) error {
			if l.Name == "old" {
				<-ctx.Done()
				return errors.New("killed")
			}
			return nil
		})()
		wantReady(t, c, "STATUS of CNI network old has not been checked yet")
		write(t, filepath.Join(c.cfg().ConfDir, "10.conflist"), fakeConf("1.1.0", "new"))
		c.health.wake()
		synctest.Wait()
		wantReady(t, c, "STATUS of CNI network old has not been checked yet") // that it was killed is not its answer
		time.Sleep(debounceTime)
		synctest.Wait()
		wantReady(t, c, "")
	})
}

// TestManyChangesAreOneRead: an installer that writes continuously causes ten reads a second, not one per write.
func TestManyChangesAreOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCNI(t, testConfig(t), nil)
		write(t, filepath.Join(c.cfg().ConfDir, "10.conflist"), fakeConf("1.1.0", "a"))
		asked := 0
		defer startHealth(t, c, func(context.Context, *libcni.NetworkConfigList) error {
			asked++
			return nil
		})()
		for range 1000 {
			c.health.wake()
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if asked < 5 || asked > 15 {
			t.Errorf("STATUS ran %d times in a second of changes, want 5 to 15", asked)
		}
	})
}

func TestBrokenFilesAreLoggedOnce(t *testing.T) {
	c := newFakeCNI(t, testConfig(t), nil)
	log, hook := logtest.NewNullLogger()
	c.log = log
	write(t, filepath.Join(c.cfg().ConfDir, "00.conflist"), "{")
	write(t, filepath.Join(c.cfg().ConfDir, "10.conflist"), fakeConf("1.0.0", "a"))
	warnings := func() (n int) {
		for _, e := range hook.AllEntries() {
			if e.Level == logrus.WarnLevel && strings.Contains(e.Message, "failed to load CNI configuration") {
				n++
			}
		}
		return n
	}
	for range 3 {
		c.health.readConf()
	}
	if n := warnings(); n != 1 {
		t.Errorf("%d warnings about one invalid file, want 1", n)
	}
	write(t, filepath.Join(c.cfg().ConfDir, "00.conflist"), "[]")
	c.health.readConf()
	if n := warnings(); n != 2 {
		t.Errorf("%d warnings after its error changed, want 2", n)
	}
	wantReady(t, c, "")
}

// TestWatchSeesTheDirectoryAppearAndChange uses the real filesystem.
func TestWatchSeesTheDirectoryAppearAndChange(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "etc", "cni", "net.d")
	state := confState(dir)
	changed := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		watchConf(ctx, dir, state, func() { changed <- struct{}{} })
	}()
	defer func() {
		cancel()
		<-done
	}()
	expect := func(what string, do func() error) {
		t.Helper()
		for len(changed) > 0 {
			<-changed
		}
		if err := do(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changed:
		case <-time.After(10 * time.Second):
			t.Errorf("no change of %s reported within 10s", what)
		}
	}
	file := filepath.Join(dir, "10.conflist")
	expect("the directory appearing", func() error { return os.MkdirAll(dir, 0o755) })
	expect("a file appearing", func() error { return os.WriteFile(file, []byte("x"), 0o644) })
	expect("a file changing", func() error { return os.WriteFile(file, []byte("y"), 0o644) })
	expect("a file moving in", func() error { return os.Rename(file, filepath.Join(dir, "20.conflist")) })
	expect("the directory going", func() error { return os.RemoveAll(filepath.Join(root, "etc")) })
	expect("the directory coming back", func() error { return os.MkdirAll(dir, 0o755) })
	expect("a file in the new directory", func() error { return os.WriteFile(file, []byte("x"), 0o644) })
	expect("the directory being replaced", func() error {
		next := filepath.Join(root, "next")
		return errors.Join(os.Mkdir(next, 0o755), os.Rename(dir, filepath.Join(root, "old")), os.Rename(next, dir))
	})
	expect("a file in the replaced directory", func() error { return os.WriteFile(file, []byte("x"), 0o644) })
}

func TestNewFollowsTheRealDirectory(t *testing.T) {
	cfg := testConfig(t)
	if err := os.Remove(cfg.ConfDir); err != nil {
		t.Fatal(err)
	}
	c, err := New(stateDir(cfg), cfg, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetStatusTimes(time.Hour, statusTimeout) // only the watch can tell
	wantReady(t, c, "no CNI configuration in")
	if err := os.Mkdir(cfg.ConfDir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(cfg.ConfDir, "10.conflist"), fakeConf("1.0.0", "a"))
	for deadline := time.Now().Add(10 * time.Second); c.Ready() != nil && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	wantReady(t, c, "")
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestReconfigure: the configuration of another directory is read at once.
func TestReconfigure(t *testing.T) {
	cfg := testConfig(t)
	log, _ := logtest.NewNullLogger()
	c, err := newCNI(stateDir(cfg), cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	c.start()
	t.Cleanup(func() { c.Close() })
	wantReady(t, c, "no CNI configuration in "+cfg.ConfDir)
	other := cfg
	other.ConfDir = t.TempDir()
	c.Reconfigure(other)
	wantReady(t, c, "no CNI configuration in "+other.ConfDir)
}
