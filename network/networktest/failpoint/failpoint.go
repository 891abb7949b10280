// Package failpoint is a CNI plugin for tests that behaves as the test sets: it can succeed, fail, hang, or print
// anything. It records its calls.
//
// It owns the files of the directory given to Install. A test binary becomes the plugin through a link to it under the
// plugin's name: call Run first in TestMain. Only tests may use it.
package failpoint

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Name is the plugin's type in a CNI configuration.
const Name = "failpoint"

// Actions of the plugin, for Set.
const (
	Succeed     = ""
	Fail        = "fail"         // answer with an error as CNI wants it
	Crash       = "crash"        // exit with a message on stderr
	Hang        = "hang"         // start a child that keeps the output open, ignore signals, and wait
	Flood       = "flood"        // print 100 MB
	FloodStderr = "flood-stderr" // print 100 MB to stderr, then succeed
	Linger      = "linger"       // succeed, but leave a child behind that keeps the output open
	Print       = "print:"       // print what follows, and exit with success
	FailPrint   = "failprint:"   // print what follows, and exit with failure
)

// Address is the address of a pod that has none from a previous plugin.
const Address = "192.0.2.7/24"

// Call is one recorded call.
type Call struct {
	Command, ContainerID, Netns, IfName, Args, Path string
	// Env are the names of the environment variables.
	Env []string
	// Stdin is the configuration passed to the plugin.
	Stdin json.RawMessage
	// Pid is the plugin's process, and its process group.
	Pid int
}

// Plugin is the plugin as installed for one test.
type Plugin struct {
	t   testing.TB
	dir string
}

// Install links the running test binary as the plugin into binDir.
func Install(t testing.TB, binDir string) *Plugin {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(binDir, Name)); err != nil {
		t.Fatal(err)
	}
	return &Plugin{t: t, dir: t.TempDir()}
}

// Conf returns the plugin's entry for a configuration's list of plugins. extra has further JSON fields.
func (p *Plugin) Conf(extra string) string {
	return fmt.Sprintf(`{"type":%q,"dir":%q%s}`, Name, p.dir, extra)
}

// Set sets the plugin's action at command (ADD, DEL, STATUS, GC, CHECK) from now on.
func (p *Plugin) Set(command, action string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, command), []byte(action), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// Calls returns the calls so far, of one command or, for "", of all.
func (p *Plugin) Calls(command string) []Call {
	p.t.Helper()
	f, err := os.Open(filepath.Join(p.dir, "diary"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	var calls []Call
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var c Call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			p.t.Fatal(err)
		}
		if command == "" || c.Command == command {
			calls = append(calls, c)
		}
	}
	return calls
}

// Run runs the plugin and does not return, if the process was started as the plugin.
func Run() {
	if os.Getenv("FAILPOINT_CHILD") != "" {
		ignoreSignals()
		time.Sleep(time.Hour)
		exit(0)
	}
	if filepath.Base(os.Args[0]) != Name {
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		exit(2)
	}
	exit(0)
}

// conf is the part of the configuration that the plugin reads.
type conf struct {
	CNIVersion string          `json:"cniVersion"`
	Dir        string          `json:"dir"`
	PrevResult json.RawMessage `json:"prevResult"`
}

func run() error {
	stdin, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var c conf
	if err := json.Unmarshal(stdin, &c); err != nil {
		return err
	}
	command := os.Getenv("CNI_COMMAND")
	action, err := os.ReadFile(filepath.Join(c.Dir, command))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// A test that has seen the call sets the action of the next one.
	if err := writeDiary(c.Dir, stdin); err != nil {
		return err
	}
	return act(c, command, string(action))
}

func writeDiary(dir string, stdin []byte) error {
	call := Call{
		Command: os.Getenv("CNI_COMMAND"), ContainerID: os.Getenv("CNI_CONTAINERID"), Netns: os.Getenv("CNI_NETNS"),
		IfName: os.Getenv("CNI_IFNAME"), Args: os.Getenv("CNI_ARGS"), Path: os.Getenv("CNI_PATH"), Stdin: stdin,
		Pid: os.Getpid(),
	}
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		call.Env = append(call.Env, name)
	}
	line, err := json.Marshal(call)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "diary"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(append(line, '\n')) // one write, so lines of plugins that run at once do not mix
	return err
}

func act(c conf, command, action string) error {
	if text, ok := strings.CutPrefix(action, Print); ok {
		fmt.Print(text)
		return nil
	}
	if text, ok := strings.CutPrefix(action, FailPrint); ok {
		fmt.Print(text)
		exit(1)
	}
	switch action {
	case Fail:
		fmt.Printf(`{"cniVersion":%q,"code":11,"msg":"failpoint: set to fail","details":%q}`, c.CNIVersion, command)
		exit(1)
	case Crash:
		return errors.New("failpoint: set to crash")
	case Hang:
		if err := child(); err != nil {
			return err
		}
		ignoreSignals()
		time.Sleep(time.Hour)
	case Flood:
		return flood(os.Stdout)
	case FloodStderr:
		if err := flood(os.Stderr); err != nil {
			return err
		}
	case Linger:
		if err := child(); err != nil {
			return err
		}
	}
	if command == "ADD" {
		answer(c)
	}
	return nil
}

// answer prints the result of the previous plugin, or its own.
func answer(c conf) {
	if c.PrevResult != nil {
		os.Stdout.Write(c.PrevResult)
		return
	}
	fmt.Printf(`{"cniVersion":%q,"interfaces":[{"name":"eth0","sandbox":%q}],"ips":[{"address":%q,"interface":0}]}`,
		c.CNIVersion, os.Getenv("CNI_NETNS"), Address)
}

// exit ends the process without the exit hooks of a test binary: the race detector waits a second, coverage prints to
// stderr.
func exit(code int) { syscall.Exit(code) }

func flood(w io.Writer) error {
	block := []byte(strings.Repeat("all work and no play makes jack ", 1<<15)) // 1 MiB
	for range 100 {
		if _, err := w.Write(block); err != nil {
			return err
		}
	}
	return nil
}

// child starts a process in the same process group that keeps the output open for an hour.
func child() error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"FAILPOINT_CHILD=1"}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Start()
}

func ignoreSignals() {
	signal.Ignore() // all that can be
}
