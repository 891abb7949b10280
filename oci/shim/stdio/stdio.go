// Package stdio is the process that holds the stdin, stdout and stderr of one container of a shim, whether podd runs
// or not.
//
// A shim writes a container's output into named pipes. The process reads them, writes the CRI log (and continues in a
// new file when the log was moved away), passes the output to attached clients and their input to the container. It
// exits at the end of the output. For a container with its own shim it also receives the shim's events, until it is
// killed. It owns the sockets and the pipes in the container's bundle and nothing else. It never kills.
//
// Clients use conmon's protocol (SEQPACKET: a byte for the stream, then output; in the other direction, input), so
// package conmon is the client. The program is built by `make embedded`, carried by podd, and installed and started by
// package shim.
package stdio

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/podd-project/podd/oci/logfile"
	"github.com/podd-project/podd/oci/shim/fifo"
)

// The files of a bundle that the process and its clients use.
const (
	// ConfigFile is the process's configuration, a Config.
	ConfigFile = "podd-stdio.json"
	// doneFile marks that all output is written.
	doneFile = "podd-output-done"
	// Socket is where clients attach, Control where the log is reopened.
	Socket  = "attach"
	Control = "ctl"
)

// The names of the pipes in the bundle.
const (
	Stdin  = "podd-stdin"
	Stdout = "podd-stdout"
	Stderr = "podd-stderr"
)

// Config describes one container's streams.
type Config struct {
	// Log is the CRI log; the zero value discards the output.
	Log logfile.Log `json:"log,omitzero"`
	// Terminal: all output comes on stdout.
	Terminal bool `json:"terminal,omitempty"`
	// Stdin and StdinOnce are the CRI fields of the same names.
	Stdin     bool `json:"stdin,omitempty"`
	StdinOnce bool `json:"stdinOnce,omitempty"`
	// Events: the bundle's shim posts events here. The process then runs until it is killed.
	Events bool `json:"events,omitempty"`
}

// outputs are the pipes that the shim writes to.
func (c Config) outputs() []string {
	if c.Terminal {
		return []string{Stdout}
	}
	return []string{Stdout, Stderr}
}

// Prepare writes the configuration of a bundle's process, and creates the pipes.
func Prepare(bundle string, c Config) error {
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("stdio: %w", err)
	}
	if err := os.WriteFile(filepath.Join(bundle, ConfigFile), data, 0o600); err != nil {
		return fmt.Errorf("stdio: %w", err)
	}
	pipes := c.outputs()
	if c.Stdin {
		pipes = append(pipes, Stdin)
	}
	for _, name := range pipes {
		if err := fifo.Make(filepath.Join(bundle, name)); err != nil {
			return err
		}
	}
	return nil
}

// Load reads the configuration of a bundle's process.
func Load(bundle string) (Config, error) {
	data, err := os.ReadFile(filepath.Join(bundle, ConfigFile))
	if err != nil {
		return Config{}, fmt.Errorf("stdio: %w", err)
	}
	var c Config
	if err := json.Unmarshal(data, &c); err != nil {
		return Config{}, fmt.Errorf("stdio: %w", err)
	}
	return c, nil
}

// exitFailure is the exit status of a process that could not start.
const exitFailure = 1

// Main is the program: `stdio <bundle>`. It writes "ok" or an error to descriptor 3 and runs until the output has
// ended.
func Main(args []string) int {
	ready := os.NewFile(3, "ready")
	if len(args) != 2 {
		fmt.Fprintf(os.Stderr, "usage: %s BUNDLE (podd starts it)\n", args[0])
		return exitFailure
	}
	// There is one process per container, and it mostly waits: one CPU and a small heap.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(20)
	// A signal to podd's process group, or a client that is gone, must not end it.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	s, err := open(args[1])
	if err != nil {
		_, _ = fmt.Fprint(ready, err)
		return exitFailure
	}
	_, _ = fmt.Fprint(ready, readyAnswer)
	_ = ready.Close()
	s.run()
	return 0
}

const readyAnswer = "ok"

// server holds one container's streams.
type server struct {
	cfg Config
	// doneFile is the path of the mark.
	doneFile string
	log      *log
	out      map[byte]*fifo.Reader
	stdin    *os.File
	hub      *hub
	ctl      *control
	// events is nil if no shim runs in the bundle.
	events *eventServer
}

// open opens everything. The pipes must be open before the shim opens them.
func open(bundle string) (_ *server, err error) {
	s := &server{doneFile: filepath.Join(bundle, doneFile), out: map[byte]*fifo.Reader{}}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.cfg, err = Load(bundle); err != nil {
		return nil, err
	}
	if s.log, err = openLog(s.cfg.Log); err != nil {
		return nil, err
	}
	for i, name := range s.cfg.outputs() {
		if s.out[firstStream+byte(i)], err = fifo.Open(filepath.Join(bundle, name)); err != nil {
			return nil, fmt.Errorf("stdio: %w", err)
		}
	}
	if s.cfg.Stdin {
		if s.stdin, err = fifo.Write(filepath.Join(bundle, Stdin)); err != nil {
			return nil, fmt.Errorf("stdio: %w", err)
		}
	}
	in := &input{f: s.stdin, once: s.cfg.StdinOnce && !s.cfg.Terminal}
	if s.hub, err = openHub(bundle, in, s.cfg.Terminal); err != nil {
		return nil, err
	}
	if s.ctl, err = openControl(bundle, s.log); err != nil {
		return nil, err
	}
	if s.cfg.Events {
		s.events, err = openEvents(bundle)
	}
	return s, err
}

// run serves until the end of the output, or forever with events.
func (s *server) run() {
	go s.hub.serve()
	go s.ctl.serve()
	var events sync.WaitGroup
	if s.events != nil {
		events.Go(s.events.serve)
	}
	s.copyAll()
	events.Wait()
	s.close()
}

// copyAll copies the output to its end, unless an earlier process has done so.
func (s *server) copyAll() {
	if _, err := os.Lstat(s.doneFile); err == nil {
		return
	}
	var readers sync.WaitGroup
	for stream, from := range s.out {
		readers.Go(func() { s.copyStream(stream, from) })
	}
	readers.Wait()
	_ = os.WriteFile(s.doneFile, nil, 0o600) // without it, podd starts another process, which finds the end too
	s.hub.drainClients()
}

// chunk is how much is read at once, and the longest piece of a line in the log: less than the kubelet's limit.
const chunk = 16 << 10

// copyStream copies one stream to its end.
func (s *server) copyStream(stream byte, from *fifo.Reader) {
	buf := make([]byte, chunk)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			s.log.write(stream, buf[:n])
			s.hub.broadcast(stream, buf[:n])
		}
		if err != nil {
			s.log.endLine(stream)
			return
		}
	}
}

func (s *server) close() {
	var errs []error
	for _, f := range s.out {
		errs = append(errs, f.Close())
	}
	if s.stdin != nil {
		errs = append(errs, s.stdin.Close())
	}
	if s.hub != nil {
		errs = append(errs, s.hub.close())
	}
	if s.ctl != nil {
		errs = append(errs, s.ctl.close())
	}
	if s.events != nil {
		errs = append(errs, s.events.close())
	}
	if s.log != nil {
		errs = append(errs, s.log.close())
	}
	_ = errors.Join(errs...) // the process exits
}
