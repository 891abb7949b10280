package daemon

import (
	"time"

	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/sandbox"
)

// generation is one configuration in force, with the runtimes made from it. It is immutable.
type generation struct {
	// number is 1 for the configuration at the start.
	number int
	cfg    *settings.Config
	// values are the keys and values of cfg.
	values   map[string]any
	runtimes map[string]sandbox.Runtime
	loaded   time.Time
	// failed is why the last reload was refused; nil if it was not.
	failed error
}
