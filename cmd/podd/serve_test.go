package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus/hooks/test"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestServeAndStop is the life of a daemon under a service manager.
func TestServeAndStop(t *testing.T) {
	s := newSite(t)
	d := s.start(t, nil)
	for name, want := range map[string]fs.FileMode{
		"run/podd.sock": fs.ModeSocket | 0o660,
		"run":           fs.ModeDir | 0o700,
		"root":          fs.ModeDir | 0o711,
		"root/pods":     fs.ModeDir | 0o700,
		"root/lock":     0o600,
		"run/lock":      0o600,
		"root/layout":   0o600,
	} {
		if info, err := os.Lstat(s.path(name)); err != nil || info.Mode() != want {
			t.Errorf("%s: got %v, %v, want %v", name, info, err, want)
		}
	}
	conn := d.dial(t)
	v, err := cri.NewRuntimeServiceClient(conn).Version(t.Context(), &cri.VersionRequest{})
	if err != nil || v.GetRuntimeName() != "podd" || v.GetRuntimeVersion() != "1.2.3-test" {
		t.Errorf("got %v, %v", v, err)
	}
	for _, service := range []string{"", "runtime.v1.RuntimeService", "runtime.v1.ImageService"} {
		resp, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: got %v, %v", service, resp, err)
		}
	}
	d.signal(t, syscall.SIGTERM)
	d.expectNotify(t, "STOPPING=1")
	d.await(t)
	if code := d.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if _, err := os.Lstat(s.socket()); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestSecondDaemonNamesTheFirst(t *testing.T) {
	s := newSite(t)
	d := s.start(t, nil)
	holder := fmt.Sprintf("is held by process %d (%s --config", d.Process.Pid, os.Getenv("PODD_TEST_BINARY"))
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"same directories": {nil, holder},
		"same root":        {[]string{"--run", s.path("run2")}, holder},
		"same run":         {[]string{"--root", s.path("root2")}, holder},
		"same socket": {[]string{"--root", s.path("root2"), "--run", s.path("run2"), "--listen", s.socket()},
			"another process listens on " + s.socket()},
	} {
		t.Run(name, func(t *testing.T) {
			if code, out := s.fail(t, c.args...); code != exitFailure || !strings.Contains(out, c.want) {
				t.Errorf("exit status %d, want %s in\n%s", code, c.want, out)
			}
		})
	}
	if _, err := cri.NewRuntimeServiceClient(d.dial(t)).Version(t.Context(), &cri.VersionRequest{}); err != nil {
		t.Errorf("the first daemon no longer answers: %v", err)
	}
}

// TestStopDoesNotWaitForWatchers: a client that watches for ever is cut off, not waited for.
func TestStopDoesNotWaitForWatchers(t *testing.T) {
	d := newSite(t).start(t, nil)
	watch, err := healthpb.NewHealthClient(d.dial(t)).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if code := d.stop(t); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if took := time.Since(start); took >= drainTimeout {
		t.Errorf("the stop took %v", took)
	}
	for err == nil { // the last word is that nothing is served any more
		_, err = watch.Recv()
	}
	if strings.Contains(d.log.String(), "calls did not finish in time") {
		t.Error("the drain waited for a stream")
	}
}

// TestRestart: a daemon that was killed leaves its socket and its locks' files; the next takes over.
func TestRestart(t *testing.T) {
	s := newSite(t)
	first := s.start(t, nil)
	first.signal(t, syscall.SIGKILL)
	first.await(t)
	if _, err := os.Lstat(s.socket()); err != nil {
		t.Fatalf("expected a stale socket: %v", err)
	}
	second := s.start(t, nil)
	if _, err := cri.NewRuntimeServiceClient(second.dial(t)).Version(t.Context(), &cri.VersionRequest{}); err != nil {
		t.Error(err)
	}
	if code := second.stop(t); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// TestMissingBinaries: without any runtime the daemon serves, and says what is missing.
func TestMissingBinaries(t *testing.T) {
	s := newSite(t)
	s.config(t, "[runtime]\nsearch_path = [\"/nonexistent\"]\n[runtime.handlers.kata]\npath = \"/nonexistent/kata\"\n")
	d := s.start(t, nil)
	d.log.expect(t, "runtime handler is not ready")
	d.log.expect(t, "pod network is not ready")
	resp, err := cri.NewRuntimeServiceClient(d.dial(t)).Status(t.Context(), &cri.StatusRequest{Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	for _, c := range resp.GetStatus().GetConditions() {
		if c.GetStatus() {
			t.Errorf("%s is true", c.GetType())
		}
		reasons[c.GetType()] = c.GetMessage()
	}
	for condition, want := range map[string]string{cri.RuntimeReady: "no runc in /nonexistent", cri.NetworkReady: s.path("net.d")} {
		if !strings.Contains(reasons[condition], want) {
			t.Errorf("%s: got %q, want %q", condition, reasons[condition], want)
		}
	}
	for _, handler := range []string{"runc", "crun", "kata"} {
		if !strings.Contains(resp.GetInfo()["handlers"], `"`+handler+`"`) {
			t.Errorf("handler %s is not in %s", handler, resp.GetInfo()["handlers"])
		}
	}
}

// TestSignalsThatDoNotStop: SIGHUP, SIGPIPE and SIGUSR1 leave the daemon running.
func TestSignalsThatDoNotStop(t *testing.T) {
	s := newSite(t)
	d := s.start(t, nil)
	d.signal(t, syscall.SIGPIPE)
	d.signal(t, syscall.SIGHUP)
	d.log.expect(t, "the configuration cannot be reloaded")
	d.signal(t, syscall.SIGUSR1)
	d.log.expect(t, "wrote goroutine dump")
	checkDump(t, s.path("run"))
	if _, err := cri.NewRuntimeServiceClient(d.dial(t)).Version(t.Context(), &cri.VersionRequest{}); err != nil {
		t.Error(err)
	}
}

func TestWatchdogIsFed(t *testing.T) {
	d := newSite(t).start(t, []string{"WATCHDOG_USEC=200000"})
	for range 3 {
		d.expectNotify(t, "WATCHDOG=1")
	}
}

// TestLooseDirectoryIsClosed and says so.
func TestLooseDirectoryIsClosed(t *testing.T) {
	s := newSite(t)
	mkdir(0o777)(t, s.path("run"))
	d := s.start(t, nil)
	d.log.expect(t, "directory was accessible to others")
	if info, err := os.Stat(s.path("run")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v", info, err)
	}
}

func TestLayoutSaysWhoWroteIt(t *testing.T) {
	s := newSite(t)
	s.start(t, nil).stop(t)
	data, err := os.ReadFile(s.path("root/layout"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), "v1.2.3-test") {
		t.Errorf("the layout does not say who wrote it: %s", data)
	}
}

func TestExitStatusOfAWrongConfiguration(t *testing.T) {
	s := newSite(t)
	s.config(t, "[log]\nlevle = \"info\"\n")
	if code, out := s.fail(t); code != exitConfig || !strings.Contains(out, s.path("podd.toml")+`:2: unknown key "log.levle"`) {
		t.Errorf("exit status %d\n%s", code, out)
	}
	if _, err := os.Stat(s.path("root")); !os.IsNotExist(err) {
		t.Errorf("a daemon with a wrong configuration made its state directory: %v", err)
	}
}

func TestVersionOfTheBinary(t *testing.T) {
	out, err := exec.Command(os.Getenv("PODD_TEST_BINARY"), "version").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	want := `^podd     v1\.2\.3-test\ncommit   abc\ngo       go1\.\d+\S* linux/\w+\ncri-api  v0\.\d+\.\d+\n$`
	if !regexp.MustCompile(want).Match(out) {
		t.Errorf("%s does not match\n%s", want, out)
	}
}

// TestServiceUnit keeps contrib/systemd/podd.service in step with the daemon.
func TestServiceUnit(t *testing.T) {
	data, err := os.ReadFile("../../contrib/systemd/podd.service")
	if err != nil {
		t.Fatal(err)
	}
	unit := string(data)
	for _, want := range []string{
		"Type=notify", "Delegate=yes", "KillMode=process", "OOMScoreAdjust=-999", "TasksMax=infinity", "WatchdogSec=", "LimitNOFILE=",
		fmt.Sprintf("RestartPreventExitStatus=%d", exitConfig),
	} {
		if !strings.Contains(unit, "\n"+want) {
			t.Errorf("%s is missing", want)
		}
	}
	var stop int
	if m := regexp.MustCompile(`\nTimeoutStopSec=(\d+)s`).FindStringSubmatch(unit); m != nil {
		fmt.Sscan(m[1], &stop)
	}
	if limit := (drainTimeout + closeTimeout).Seconds(); float64(stop) <= limit {
		t.Errorf("TimeoutStopSec %d is not longer than the %v s that podd may take", stop, limit)
	}
}

func TestCrictlConfigNamesTheDefaultSocket(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "contrib", "crictl.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "runtime-endpoint: unix://" + defaultConfig().Listen; !strings.Contains(string(data), want) {
		t.Errorf("%s is missing", want)
	}
}

func TestSemver(t *testing.T) {
	for in, want := range map[string]string{
		"v1.2.3": "1.2.3", "1.2.3-rc.1+x": "1.2.3-rc.1+x", "v1.2.3-4-gabc-dirty": "1.2.3-4-gabc-dirty",
		"dev": "0.0.0-dev", "4354b7a": "0.0.0-4354b7a", "": "0.0.0", "a b": "0.0.0-a-b", "v1.2": "0.0.0-v1.2",
	} {
		if got := semver(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// TestStopWhileStarting: a daemon that is told to stop before it serves goes quietly.
func TestStopWhileStarting(t *testing.T) {
	requireRoot(t)
	log, hook := test.NewNullLogger()
	c := stateConfig(t)
	c.place(c.Root, c.Run)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errStopped)
	d := &daemon{cfg: c, log: log}
	if err := d.run(ctx); err != nil {
		t.Errorf("got %v", err)
	}
	if e := hook.LastEntry(); e == nil || e.Message != "stopped during the start" {
		t.Errorf("logged %v", hook.AllEntries())
	}
	if _, err := os.Lstat(c.Listen); !os.IsNotExist(err) {
		t.Errorf("it listened: %v", err)
	}
	if st, err := openState(c, log); err != nil {
		t.Errorf("it did not let its state go: %v", err)
	} else if err := st.close(); err != nil {
		t.Error(err)
	}
}
