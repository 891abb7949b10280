package nri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	nrinet "github.com/containerd/nri/pkg/net"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/oci/subprocess"
)

const (
	// launchDelay is the time after which a plugin that exited is restarted; it doubles up to maxLaunchDelay.
	launchDelay    = time.Second
	maxLaunchDelay = time.Minute
	// launchedWell is stable running time: it resets the delay.
	launchedWell = time.Minute
	// configLimit bounds a plugin's configuration file, which is one message.
	configLimit = 1 << 20
	// outputLine bounds one line of a plugin's output in the log.
	outputLine = 4096
)

// launch is a plugin in the plugin directory.
type launch struct {
	name, path string
	// err is why it does not run, nil while it does.
	err error
}

// installed returns the plugins in the plugin directory. One that cannot be used is logged.
func (p *Plugins) installed() (list []*launch) {
	if p.cfg.PluginDir == "" {
		return nil
	}
	entries, err := readProgramDir(p.cfg.PluginDir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			p.log.WithError(err).Error("failed to read the directory of NRI plugins")
		}
		return nil
	}
	for _, e := range entries {
		path := filepath.Join(p.cfg.PluginDir, e.Name())
		info, err := os.Stat(path)
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			continue // as containerd
		}
		if err := checkProgram(e.Name(), path, info); err != nil {
			p.log.WithError(err).Error("NRI plugin is not started")
			continue
		}
		one := &launch{name: e.Name(), path: path}
		if len(list) == maxPlugins {
			p.log.WithField("path", path).Errorf("NRI plugin is not started: there are more than %d", maxPlugins)
			break
		}
		list = append(list, one)
		p.mu.Lock()
		p.launches[one.name] = one
		p.mu.Unlock()
	}
	return list
}

// readProgramDir reads dir, which must be writable by root only.
func readProgramDir(dir string) ([]os.DirEntry, error) {
	info, err := os.Stat(dir)
	if err == nil {
		err = checkOwner(dir, info)
	}
	if err != nil {
		return nil, err
	}
	return os.ReadDir(dir)
}

// checkOwner rejects a file or directory that anyone but podd's user, root, can modify.
func checkOwner(path string, info fs.FileInfo) error {
	if s, ok := info.Sys().(*syscall.Stat_t); ok && int(s.Uid) != os.Geteuid() || info.Mode()&0o022 != 0 {
		return fmt.Errorf("%w: %s must belong to root and be writable by root only", errdefs.ErrPermissionDenied, path)
	}
	return nil
}

// checkProgram refuses a program that others than root can change, and WebAssembly, which podd does not run.
func checkProgram(name, path string, info fs.FileInfo) error {
	if _, _, err := api.ParsePluginName(name); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := checkOwner(path, info); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	magic := make([]byte, 4)
	if n, _ := f.Read(magic); bytes.Equal(magic[:n], []byte("\x00asm")) {
		return fmt.Errorf("%w: %s is WebAssembly: podd runs programs only", errdefs.ErrNotImplemented, path)
	}
	return nil
}

// keepRunning starts a plugin, and restarts it whenever it exits, until ctx ends. Its programs are children of one
// thread, which ends with podd, see start.
func (p *Plugins) keepRunning(ctx context.Context, one *launch) {
	runtime.LockOSThread() // without an unlock: the thread is not used for anything else
	for delay := launchDelay; ; delay = min(2*delay, maxLaunchDelay) {
		start := time.Now()
		err := p.runProgram(ctx, one)
		if ctx.Err() != nil {
			return
		}
		p.setLaunchError(one, err)
		p.log.WithError(err).WithField("nri_plugin", one.name).Error("NRI plugin exited, restarting it")
		if time.Since(start) > launchedWell {
			delay = launchDelay
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return
		}
	}
}

func (p *Plugins) setLaunchError(one *launch, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one.err = err
}

// runProgram starts a plugin and returns when it has exited or is disconnected, with the reason.
func (p *Plugins) runProgram(ctx context.Context, one *launch) error {
	config, err := p.readConfig(one.name)
	if err != nil {
		return err
	}
	running, conn, err := p.start(one)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- running.WaitGroup(context.WithoutCancel(ctx)) }()
	plugin, err := p.connect(ctx, conn, program{one.name, config, running.Pid()})
	if err == nil {
		p.setLaunchError(one, nil)
		<-plugin.closed
		err = plugin.reason
	}
	running.Kill() // it may have exited
	return errors.Join(err, <-ended)
}

// readConfig returns the plugin's configuration: that of its name with the index, or else without.
func (p *Plugins) readConfig(name string) (string, error) {
	_, base, err := api.ParsePluginName(name)
	if err != nil || p.cfg.ConfigDir == "" {
		return "", err
	}
	for _, file := range []string{name + ".conf", base + ".conf"} {
		path := filepath.Join(p.cfg.ConfigDir, file)
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return "", err
		case !info.Mode().IsRegular() || info.Size() > configLimit:
			return "", fmt.Errorf("%w: %s must be a regular file of at most %d bytes",
				errdefs.ErrInvalidArgument, path, configLimit)
		}
		text, err := os.ReadFile(path)
		return string(text), err
	}
	return "", nil
}

// start starts the program with one end of a connection as its descriptor 3, and returns the other.
func (p *Plugins) start(one *launch) (*subprocess.Process, net.Conn, error) {
	pair, err := nrinet.NewSocketPair()
	if err != nil {
		return nil, nil, err
	}
	defer pair.Close()
	conn, err := pair.LocalConn()
	if err != nil {
		return nil, nil, err
	}
	peer := pair.PeerFile()
	defer peer.Close()
	index, base, err := api.ParsePluginName(one.name)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	cmd := exec.Command(one.path)
	cmd.ExtraFiles = []*os.File{peer}
	cmd.Env = []string{
		api.PluginNameEnvVar + "=" + base, api.PluginIdxEnvVar + "=" + index, api.PluginSocketEnvVar + "=3",
		"PATH=" + os.Getenv("PATH"),
	}
	output := &lineLog{log: p.log.WithField("nri_plugin", one.name)}
	cmd.Stdout, cmd.Stderr = output, output
	// The kernel kills the program when the thread that started it ends, even if podd is killed. The next podd restarts
	// it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	running, err := subprocess.Start(cmd)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return running, conn, nil
}

// lineLog logs each line that a plugin writes. Write is called by one goroutine, because stdout and stderr are equal.
type lineLog struct {
	log  logrus.FieldLogger
	rest []byte
}

func (l *lineLog) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		end := bytes.IndexByte(l.rest, '\n')
		if end < 0 && len(l.rest) < outputLine {
			return len(b), nil
		}
		if end < 0 || end > outputLine {
			end = outputLine
		}
		l.log.WithField("output", string(bytes.TrimSpace(l.rest[:end]))).Info("NRI plugin wrote")
		l.rest = bytes.TrimPrefix(l.rest[end:], []byte("\n"))
	}
}
