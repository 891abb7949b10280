package settings

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/pelletier/go-toml/v2"

	"github.com/podd-project/podd/cmd/podd/tomlconfig"
)

// RunDir returns the key run, also of a configuration that is wrong elsewhere: the commands that call a running daemon
// need nothing else.
func (f *Flags) RunDir() (string, error) {
	l, err := f.Load()
	if err == nil {
		return l.Run, nil
	}
	if f.flags.Changed("config") {
		if _, missing := os.Stat(f.File); missing != nil {
			return "", Error{Err: missing} // else the command would call the daemon of another file
		}
	}
	c := Default()
	f.readRun(&c)
	if wrong := f.apply(tomlconfig.New(&c)); len(wrong) > 0 {
		return "", Error{Err: errors.Join(wrong...)}
	}
	return c.Run, nil
}

// readRun sets c.Run to the last value of that key in those files that can be read.
func (f *Flags) readRun(c *Config) {
	dropIns, _ := filepath.Glob(f.File + ".d/[!.]*.toml") // sorted
	for _, path := range append([]string{f.File}, dropIns...) {
		var keys struct{ Run string }
		if data, err := readConfigFile(path); err == nil && toml.Unmarshal(data, &keys) == nil && keys.Run != "" {
			c.Run = keys.Run
		}
	}
}
