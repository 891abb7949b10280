// Package daemon is the process that serves: it makes the image store, the network, the engine and the servers of a
// configuration, takes over the pods of the daemon before it, serves until a signal, and replaces the configuration. It
// owns the signals, the service manager, the log and the answers of the admin API, metrics and cAdvisor. It neither
// parses a command line nor prints. podd's commands call it, also for a node whose daemon is stopped (Offline) and for
// a report about the machine (Inspect).
package daemon

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/budget"
)

// drainTimeout is how long calls may take to finish when the daemon stops. closeTimeout is how long the engine then has
// to undo unfinished creations. TimeoutStopSec of the service unit is longer than both together.
const (
	drainTimeout = 10 * time.Second
	closeTimeout = 10 * time.Second
)

// errStopped is the cause of contexts that end because the daemon stops.
var errStopped = errors.New("podd is stopping")

// daemon is one run of podd.
type daemon struct {
	// version is that of the build.
	version string
	// cfg is the configuration at the start, and values are its keys and values.
	cfg    settings.Config
	values map[string]any
	// machine has the facts of the node, set by mechanisms.
	machine sandbox.Node

	// load reads the configuration again. current is the one in force; reloading is held while it is replaced. reloads
	// holds a value while a signal asks for one.
	load      func() (*settings.Loaded, error)
	current   atomic.Pointer[generation]
	reloading sync.Mutex
	reloads   chan struct{}
	// initProxy, thaw and starter are the paths of programs that handlers need, "" if they could not be installed.
	// stdio installs that of shims when the first of them is made.
	initProxy, thaw, starter string
	stdio                    func() string

	log    logrus.FieldLogger
	notify notifier
	gc     *gcTuner

	// observers are set by build. Commands that do not serve have none.
	observers observers
	// budgets are made with the mechanisms that enforce them.
	budgets *budget.Table

	// openDir is the run directory, once it is locked.
	openDir atomic.Pointer[string]
	// closers undo the start, in reverse order.
	closers []func() error
	// background are goroutines that end with the daemon's context.
	background sync.WaitGroup
}

// dumpDir returns the directory of goroutine dumps, "" while there is none.
func (d *daemon) dumpDir() string {
	if dir := d.openDir.Load(); dir != nil {
		return *dir
	}
	return ""
}

// onClose registers f to be called by undoStart. What names it in errors.
func (d *daemon) onClose(what string, f func() error) {
	d.closers = append(d.closers, func() error {
		if err := f(); err != nil {
			return fmt.Errorf("close %s: %w", what, err)
		}
		return nil
	})
}

// undoStart undoes the start. It does not touch pods.
func (d *daemon) undoStart() error {
	var errs []error
	for i := len(d.closers) - 1; i >= 0; i-- {
		errs = append(errs, d.closers[i]())
	}
	return errors.Join(errs...)
}
