package network

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/network/reference"
	"github.com/podd-project/podd/oci/subprocess"
)

// Bounds of a plugin's output, in bytes.
const (
	maxStdout  = 1 << 20
	maxStderr  = 16 << 10
	maxMessage = 2 << 10
)

// executor runs CNI plugins for libcni: by absolute path from the configured directories only, with a small
// environment, bounded output, and a deadline at which the plugin's process group is killed.
type executor struct {
	version.PluginDecoder
	// env is the plugins' environment, without the six variables of CNI.
	env []string
	execOptions
}

// execOptions are the options of one operation.
type execOptions struct {
	// onAdd, if set, gets the input and the output of each plugin whose ADD succeeded; its error fails the ADD.
	onAdd func(stdin, stdout []byte) error
	// delLock, if set, is inherited by the plugins (see CNI.lockDel), which then outlive the daemon.
	delLock *os.File
	// idle, if set, knows plugins that need not be run for some pods.
	idle *reference.Idle
}

// cniVariable reports whether libcni sets the variable. The rest of what libcni passes, the daemon's environment, is
// not used.
func cniVariable(pair string) bool {
	name, _, _ := strings.Cut(pair, "=")
	return slices.Contains([]string{
		"CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_ARGS", "CNI_IFNAME", "CNI_PATH",
	}, name)
}

// pluginEnv returns the part of the daemon's environment that plugins get: enough to find iptables and to reach an API
// server, but no secrets or sockets of the daemon (NOTIFY_SOCKET).
func pluginEnv(environ, extra []string) []string {
	const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	names := append([]string{
		"LANG", "TZ", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	}, extra...)
	path := defaultPath
	var env []string
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case name == "PATH" && value != "":
			path = value + ":" + defaultPath
		case slices.Contains(names, name):
			env = append(env, pair)
		}
	}
	return append(env, "PATH="+path)
}

// checkPluginName refuses names that lead out of the plugin directories (CVE-2021-20206).
func checkPluginName(name string) error {
	notPlain := func(c rune) bool { return c == '/' || notGraphic(c) }
	if name == "" || name[0] == '.' || len(name) > unix.NAME_MAX || strings.ContainsFunc(name, notPlain) {
		return fmt.Errorf("plugin type %.80q is not a plain file name", name)
	}
	return nil
}

// FindInPath implements invoke.Exec.
func (e *executor) FindInPath(plugin string, paths []string) (string, error) {
	if err := checkPluginName(plugin); err != nil {
		return "", err
	}
	for _, dir := range paths {
		path := filepath.Join(dir, plugin)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("CNI plugin %q is not in %s", plugin, strings.Join(paths, ", "))
}

// ExecPlugin implements invoke.Exec: it runs the plugin and returns its output, unless
// it would do nothing.
func (e *executor) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	if out, ok := e.idle.Skip(path, stdin, environ); ok {
		return out, nil
	}
	p := &plugin{
		path: path, stdin: stdin, env: slices.Clone(e.env), delLock: e.delLock,
		stdout: subprocess.NewStrictHead(maxStdout), stderr: subprocess.NewHead(maxStderr),
	}
	for _, pair := range environ {
		if cniVariable(pair) {
			p.env = append(p.env, pair)
		}
	}
	if err := p.run(ctx); err != nil {
		return nil, fmt.Errorf("CNI plugin %s: %w", filepath.Base(path), err)
	}
	out := p.stdout.Bytes()
	if e.onAdd != nil && slices.Contains(environ, "CNI_COMMAND=ADD") {
		if err := e.onAdd(stdin, out); err != nil {
			return nil, fmt.Errorf("CNI plugin %s: %w", filepath.Base(path), err)
		}
	}
	return out, nil
}

// plugin is one run of a plugin.
type plugin struct {
	path           string
	stdin          []byte
	env            []string
	stdout, stderr *subprocess.Head
	delLock        *os.File // see execOptions
}

// run starts the plugin and waits for its exit, or kills it with its children when ctx ends.
func (p *plugin) run(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// A plugin dies with the thread that started it (Pdeathsig), so that after a crash of the daemon no ADD runs
	// concurrently with the DEL of the next one. Locked, the thread lives as long as this goroutine waits.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	running, err := p.start(ctx)
	if err != nil {
		return err
	}
	return p.outcome(ctx, running.Wait(ctx))
}

// start starts the plugin.
func (p *plugin) start(ctx context.Context) (*subprocess.Process, error) {
	for wait := 10 * time.Millisecond; ; wait *= 2 {
		cmd := exec.Command(p.path)
		cmd.Env, cmd.Dir = p.env, "/"
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(p.stdin), p.stdout, p.stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if p.delLock != nil {
			cmd.SysProcAttr.Pdeathsig = 0
			cmd.ExtraFiles = []*os.File{p.delLock}
		}
		running, err := subprocess.Start(cmd)
		// An installer is still writing the plugin.
		if !errors.Is(err, unix.ETXTBSY) || wait > time.Second {
			return running, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// outcome converts the error of Wait: it adds the plugin's error message or output.
func (p *plugin) outcome(ctx context.Context, err error) error {
	switch {
	case err == nil && !p.stdout.Truncated():
		return nil
	case errors.Is(err, subprocess.ErrUnkillable): // it still writes
		return err
	case p.stdout.Truncated():
		return fmt.Errorf("printed more than %d bytes", maxStdout)
	case ctx.Err() != nil:
		return fmt.Errorf("killed: %w", err)
	}
	failure := &types.Error{}
	if json.Unmarshal(p.stdout.Bytes(), failure) == nil && failure.Msg != "" {
		failure.Msg, failure.Details = printable(failure.Msg), printable(failure.Details)
		return failure
	}
	output := p.stderr.String()
	if strings.TrimSpace(output) == "" {
		output = p.stdout.String()
	}
	return fmt.Errorf("%w: %s", err, printable(output))
}

// printable makes text of a plugin fit for a log: one line, no control characters, bounded length.
func printable(s string) string {
	s = strings.Map(func(c rune) rune {
		switch {
		case c == '\n' || c == '\t':
			return ' '
		case c < ' ' || c >= 0x7f && c < 0xa0 || c == '\u2028' || c == '\u2029':
			return -1
		}
		return c
	}, strings.ToValidUTF8(strings.TrimSpace(s[:min(len(s), maxMessage)]), "?"))
	return s
}
