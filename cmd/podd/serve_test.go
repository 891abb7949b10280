package main

import (
	"errors"
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

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/cmd/podd/settings"
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
			t.Errorf("%s = %v, %v, want mode %v", name, info, err, want)
		}
	}
	conn := d.dial(t)
	v, err := cri.NewRuntimeServiceClient(conn).Version(t.Context(), &cri.VersionRequest{})
	if err != nil || v.GetRuntimeName() != "podd" || v.GetRuntimeVersion() != "1.2.3-test" {
		t.Errorf("Version() = %v, %v, want podd 1.2.3-test", v, err)
	}
	for _, service := range []string{"", "runtime.v1.RuntimeService", "runtime.v1.ImageService"} {
		resp, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q = %v, %v, want SERVING", service, resp, err)
		}
	}
	d.signal(t, syscall.SIGTERM)
	d.expectNotify(t, "STOPPING=1")
	d.await(t)
	if code := d.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit status = %d, want 0", code)
	}
	if _, err := os.Lstat(s.socket()); !os.IsNotExist(err) {
		t.Errorf("Lstat(socket) = %v, want not exist", err)
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
				t.Errorf("exit status = %d, want %d; want %q in\n%s", code, exitFailure, c.want, out)
			}
		})
	}
	if _, err := cri.NewRuntimeServiceClient(d.dial(t)).Version(t.Context(), &cri.VersionRequest{}); err != nil {
		t.Errorf("Version() of the first daemon: %v", err)
	}
}

// TestStopDoesNotWaitForWatchers: the stream of a client that watches indefinitely is closed.
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
		t.Errorf("exit status = %d, want 0", code)
	}
	if took := time.Since(start); took >= 10*time.Second { // what calls may take to finish
		t.Errorf("the stop took %v, want less than 10s", took)
	}
	for err == nil { // the last message is NOT_SERVING
		_, err = watch.Recv()
	}
	if strings.Contains(d.log.String(), "calls did not finish in time") {
		t.Error("the drain waited for a stream")
	}
}

// TestRestart: a daemon replaces the socket and takes the locks of one that was killed.
func TestRestart(t *testing.T) {
	s := newSite(t)
	first := s.start(t, nil)
	first.signal(t, syscall.SIGKILL)
	first.await(t)
	if _, err := os.Lstat(s.socket()); err != nil {
		t.Fatalf("Lstat(socket) = %v, want a stale socket", err)
	}
	second := s.start(t, nil)
	if _, err := cri.NewRuntimeServiceClient(second.dial(t)).Version(t.Context(), &cri.VersionRequest{}); err != nil {
		t.Error(err)
	}
	if code := second.stop(t); code != 0 {
		t.Errorf("exit status = %d, want 0", code)
	}
}

// TestMissingBinaries: without any runtime the daemon serves, and reports what is missing.
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
			t.Errorf("condition %s = true, want false", c.GetType())
		}
		reasons[c.GetType()] = c.GetMessage()
	}
	for condition, want := range map[string]string{
		cri.RuntimeReady: "no runc in /nonexistent", cri.NetworkReady: s.path("net.d"),
	} {
		if !strings.Contains(reasons[condition], want) {
			t.Errorf("message of %s = %q, want %q in it", condition, reasons[condition], want)
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
	d.log.expect(t, "reloaded the configuration")
	d.signal(t, syscall.SIGUSR1)
	d.log.expect(t, "wrote goroutine dump")
	if dumps, err := filepath.Glob(s.path("run/goroutines-*.txt")); err != nil || len(dumps) != 1 {
		t.Errorf("dumps = %v, %v, want one", dumps, err)
	}
	if _, err := cri.NewRuntimeServiceClient(d.dial(t)).Version(t.Context(), &cri.VersionRequest{}); err != nil {
		t.Error(err)
	}
}

func TestWatchdogIsNotified(t *testing.T) {
	d := newSite(t).start(t, []string{"WATCHDOG_USEC=200000"})
	for range 3 {
		d.expectNotify(t, "WATCHDOG=1")
	}
}

// TestOpenDirectoryIsRestricted: the daemon restricts the mode of its run directory, with a warning.
func TestOpenDirectoryIsRestricted(t *testing.T) {
	s := newSite(t)
	if err := errors.Join(os.Mkdir(s.path("run"), 0o700), os.Chmod(s.path("run"), 0o777)); err != nil {
		t.Fatal(err)
	}
	d := s.start(t, nil)
	d.log.expect(t, "directory was accessible to others")
	if info, err := os.Stat(s.path("run")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("run directory = %v, %v, want mode 0700", info, err)
	}
}

func TestLayoutNamesItsWriter(t *testing.T) {
	s := newSite(t)
	s.start(t, nil).stop(t)
	data, err := os.ReadFile(s.path("root/layout"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), "v1.2.3-test") {
		t.Errorf("layout = %s, want v1.2.3-test in it", data)
	}
}

func TestExitStatusOfAWrongConfiguration(t *testing.T) {
	s := newSite(t)
	s.config(t, "[log]\nlevle = \"info\"\n")
	want := s.path("podd.toml") + `:2: unknown key "log.levle"`
	if code, out := s.fail(t); code != exitConfig || !strings.Contains(out, want) {
		t.Errorf("exit status = %d, want %d; want %q in\n%s", code, exitConfig, want, out)
	}
	if _, err := os.Stat(s.path("root")); !os.IsNotExist(err) {
		t.Errorf("Stat(root) = %v, want not exist", err)
	}
}

func TestVersionOfTheBinary(t *testing.T) {
	out, err := exec.Command(os.Getenv("PODD_TEST_BINARY"), "version").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	want := `^podd     v1\.2\.3-test\ncommit   abc\ngo       go1\.\d+\S* linux/\w+\ncri-api  v0\.\d+\.\d+\n$`
	if !regexp.MustCompile(want).Match(out) {
		t.Errorf("version = %s, want a match of\n%s", out, want)
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
		"Type=notify", "Delegate=yes", "KillMode=process", "OOMScoreAdjust=-999", "TasksMax=infinity",
		"WatchdogSec=", "LimitNOFILE=",
		fmt.Sprintf("RestartPreventExitStatus=%d", exitConfig),
	} {
		if !strings.Contains(unit, "\n"+want) {
			t.Errorf("the unit has no %s", want)
		}
	}
}

func TestCrictlConfigNamesTheDefaultSocket(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "contrib", "crictl.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "runtime-endpoint: unix://" + settings.Default().Listen; !strings.Contains(string(data), want) {
		t.Errorf("crictl.yaml has no %s", want)
	}
}
