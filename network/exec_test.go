package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/network/networktest/failpoint"
)

func TestCheckPluginName(t *testing.T) {
	for name, ok := range map[string]bool{
		"bridge": true, "host-local": true, "my.plugin_2": true,
		"": false, ".": false, "..": false, "../bridge": false, "/bin/sh": false, "a/b": false, ".hidden": false,
		"a b": false, "a\nb": false, "a\x00": false, "ä": false, strings.Repeat("a", 256): false,
	} {
		if err := checkPluginName(name); (err == nil) != ok {
			t.Errorf("checkPluginName(%q) = %v, want success: %v", name, err, ok)
		}
	}
}

func TestFindInPath(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	write(t, filepath.Join(b, "bridge"), "")
	write(t, filepath.Join(a, "data"), "")
	if err := os.Chmod(filepath.Join(b, "bridge"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(a, "bridge"), 0o755); err != nil {
		t.Fatal(err)
	}
	e := &executor{}
	if path, err := e.FindInPath("bridge", []string{a, b}); err != nil || path != filepath.Join(b, "bridge") {
		t.Errorf("FindInPath = %q, %v, want %s: a directory is not a plugin", path, err, filepath.Join(b, "bridge"))
	}
	for _, name := range []string{"data", "absent", "../" + filepath.Base(b) + "/bridge", ""} {
		if path, err := e.FindInPath(name, []string{a, b}); err == nil {
			t.Errorf("FindInPath(%q) = %s, want an error", name, path)
		}
	}
}

func TestPluginEnv(t *testing.T) {
	got := pluginEnv([]string{"PATH=/my/bin", "SECRET=x", "NOTIFY_SOCKET=/run/s", "https_proxy=p", "CNI_ARGS=evil",
		"EXTRA=1", "odd"}, []string{"EXTRA"})
	want := []string{"https_proxy=p", "EXTRA=1",
		"PATH=/my/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if !slices.Equal(got, want) {
		t.Errorf("pluginEnv = %q, want %q", got, want)
	}
	if got := pluginEnv(nil, nil); len(got) != 1 || !strings.HasPrefix(got[0], "PATH=/usr/local/sbin:") {
		t.Errorf("pluginEnv without a PATH = %q, want the default one", got)
	}
}

// runFailpoint runs the failpoint plugin with an action, through an executor.
func runFailpoint(t *testing.T, ctx context.Context, action string) (out []byte, p *failpoint.Plugin, err error) {
	t.Helper()
	bin := t.TempDir()
	p = failpoint.Install(t, bin)
	p.Set("ADD", action)
	stdin := strings.Replace(p.Conf(""), "{", `{"cniVersion":"1.0.0",`, 1)
	e := &executor{env: []string{"PATH=/bin"}}
	out, err = e.ExecPlugin(ctx, filepath.Join(bin, failpoint.Name), []byte(stdin),
		[]string{"CNI_COMMAND=ADD", "CNI_CONTAINERID=pod1", "CNI_ARGS=A=1;B=2", "SECRET=x"})
	return out, p, err
}

func TestExecPlugin(t *testing.T) {
	long := strings.Repeat("long ", 10000)
	tests := []struct {
		name, action string
		want         string // part of the error
	}{
		{"error as CNI wants it", failpoint.Fail, "CNI plugin failpoint: failpoint: set to fail; ADD"},
		{"crash", failpoint.Crash, "exit status 2: failpoint: set to crash"},
		{"no explanation", failpoint.FailPrint, "exit status 1: "},
		{"garbage", failpoint.FailPrint + "oh\nno \x1b[31m\x00red\xff", "exit status 1: oh no [31mred?"},
		{"other JSON", failpoint.FailPrint + `{"message":"x"}`, `exit status 1: {"message":"x"}`},
		{"hostile message", failpoint.FailPrint + `{"code":7,"msg":"bad\nthing \u001b]0;x\u0007","details":"\u2028"}`,
			"bad thing ]0;x"},
		{"long message", failpoint.FailPrint + long, "long long"},
		{"100 MB", failpoint.Flood, "printed more than 1048576 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := runFailpoint(t, t.Context(), tt.action)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
			control := func(c rune) bool { return c < ' ' }
			if text := err.Error(); len(text) > maxMessage+200 || strings.ContainsFunc(text, control) {
				t.Errorf("error of %d bytes, want one line of at most %d: %.200q", len(text), maxMessage+200, text)
			}
		})
	}
	t.Run("code is kept", func(t *testing.T) {
		_, _, err := runFailpoint(t, t.Context(), failpoint.Fail)
		var e *types.Error
		if !errors.As(err, &e) || e.Code != types.ErrTryAgainLater {
			t.Errorf("error = %#v, want code %d", err, types.ErrTryAgainLater)
		}
	})
}

func TestExecPluginSucceeds(t *testing.T) {
	for _, action := range []string{failpoint.Succeed, failpoint.FloodStderr} {
		out, p, err := runFailpoint(t, t.Context(), action)
		if err != nil || !json.Valid(out) {
			t.Errorf("%q: ExecPlugin = %s, %v, want JSON", action, out, err)
		}
		calls := p.Calls("ADD")
		if len(calls) != 1 || calls[0].Args != "A=1;B=2" || calls[0].ContainerID != "pod1" {
			t.Fatalf("calls = %+v, want one with the arguments of pod1", calls)
		}
		want := []string{"CNI_ARGS", "CNI_COMMAND", "CNI_CONTAINERID", "PATH"}
		if slices.Sort(calls[0].Env); !slices.Equal(calls[0].Env, want) {
			t.Errorf("environment of the plugin = %q, want %q", calls[0].Env, want)
		}
	}
}

// TestExecPluginLeavesChildBehind: the plugin has exited, its child has the pipe open. The call must not wait until the
// deadline.
func TestExecPluginLeavesChildBehind(t *testing.T) {
	start := time.Now()
	out, p, err := runFailpoint(t, t.Context(), failpoint.Linger)
	if err != nil || !json.Valid(out) {
		t.Errorf("ExecPlugin = %s, %v, want JSON", out, err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v, want at most 10s", took)
	}
	if err := unix.Kill(-p.Calls("ADD")[0].Pid, unix.SIGKILL); err != nil {
		t.Errorf("kill of the plugin's child = %v, want it to be running", err)
	}
}

func TestExecPluginIsKilledWithItsChildren(t *testing.T) {
	why := fmt.Errorf("patience is over: %w", context.DeadlineExceeded)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	bin := t.TempDir()
	p := failpoint.Install(t, bin)
	p.Set("ADD", failpoint.Hang)
	go func() {
		for len(p.Calls("ADD")) == 0 { // the plugin is running when its diary says so
			time.Sleep(time.Millisecond)
		}
		cancel(why)
	}()
	_, err := (&executor{}).ExecPlugin(ctx, filepath.Join(bin, failpoint.Name), []byte(p.Conf("")),
		[]string{"CNI_COMMAND=ADD"})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "patience is over") {
		t.Errorf("ExecPlugin = %v, want the deadline's cause", err)
	}
	gone(t, p.Calls("ADD")[0].Pid)
}

// gone waits until the process group is empty: init reaps killed orphans some time later.
func gone(t *testing.T, group int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if live(group) == 0 {
			return
		}
	}
	t.Errorf("%d processes of group %d are running, want 0", live(group), group)
}

// live returns the number of processes of a group that are not zombies.
func live(group int) (n int) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return -1
	}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// After the command's name, in brackets: state, parent, group.
		f := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		if f[2] == fmt.Sprint(group) && f[0] != "Z" {
			n++
		}
	}
	return n
}

func TestExecPluginNotStarted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&executor{}).ExecPlugin(ctx, "/bin/true", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("ExecPlugin with a cancelled context = %v, want context.Canceled", err)
	}
	script := filepath.Join(t.TempDir(), "plugin")
	write(t, script, "no interpreter")
	if err := os.Chmod(script, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := (&executor{}).ExecPlugin(t.Context(), script, nil, nil); !errors.Is(err, unix.ENOEXEC) {
		t.Errorf("ExecPlugin = %v, want ENOEXEC", err)
	}
}

// TestExecPluginWhileItIsInstalled: the file is still open for writing.
func TestExecPluginWhileItIsInstalled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugin")
	data, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { f.Close() })
	if _, err := (&executor{}).ExecPlugin(t.Context(), path, nil, nil); err != nil {
		t.Errorf("ExecPlugin = %v, want no error", err)
	}
}
