// Package thaw runs the program that thaws a frozen container when podd does not: because podd was killed, or because
// the deadline has passed (see thaw.c). It is the reason why a checkpoint cannot leave a container frozen.
//
// It knows neither containers nor cgroups, only files and values for them. The driver of OCI runtimes calls it.
package thaw

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/podd-project/podd/oci/program"
	"github.com/podd-project/podd/oci/subprocess"
)

// files holds bin/thaw.gz if it was built. bin always holds a README, so that podd builds without a C compiler.
//
//go:embed all:bin
var files embed.FS

const programName = "thaw"

// Install writes the program into dir and returns its absolute path; see program.Install.
func Install(dir string) (string, error) {
	return program.Install(files, filepath.Join(dir, programName), 0o500)
}

// endDelay is how long the program may take after the end of its input, two and a half seconds of which are pauses.
const endDelay = 5 * time.Second

// Guard is the program while it waits. It survives podd.
type Guard struct {
	process *subprocess.Process
	stdin   io.WriteCloser
	// Done is closed when the program has exited, by itself only at the deadline or because it was killed.
	Done chan struct{}
}

// Start runs the program, which thaws within limit at the latest: it writes the values of the map to the files that are
// its keys. Close must be called.
func Start(path string, limit time.Duration, values map[string]string) (*Guard, error) {
	args := []string{strconv.Itoa(int(limit/time.Second) + 1)}
	for file, value := range values {
		args = append(args, file+"="+value)
	}
	cmd := exec.Command(path, args...)
	cmd.Env, cmd.Dir = []string{}, "/"
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p, err := subprocess.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("start the program that thaws containers: %w", err)
	}
	g := &Guard{process: p, stdin: stdin, Done: make(chan struct{})}
	go func() {
		_ = p.Wait(context.Background()) // the caller checks whether the container runs
		close(g.Done)
	}()
	return g, nil
}

// Watch names the process group to kill before thawing, 0 for none.
func (g *Guard) Watch(group int) error {
	_, err := fmt.Fprintln(g.stdin, group)
	return err
}

// Close makes the program thaw and waits for its exit.
func (g *Guard) Close() error {
	_ = g.stdin.Close() // it may have exited already
	select {
	case <-g.Done:
		return nil
	case <-time.After(endDelay):
		g.process.Kill()
		return errors.New("the program that thaws containers did not exit")
	}
}
