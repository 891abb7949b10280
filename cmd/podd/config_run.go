package main

import (
	"errors"
	"path/filepath"

	"github.com/pelletier/go-toml/v2"

	"github.com/podd-project/podd/cmd/podd/tomlconfig"
)

// runDir returns the key run, also of a configuration that is wrong elsewhere: the commands that call a running daemon
// need nothing else.
func (o *options) runDir() (string, error) {
	l, err := o.load()
	if err == nil {
		return l.Run, nil
	}
	c := defaultConfig()
	o.readRun(&c)
	if wrong := o.apply(tomlconfig.New(&c)); len(wrong) > 0 {
		return "", configError{errors.Join(wrong...)}
	}
	return c.Run, nil
}

// readRun sets c.Run to the last value of that key in those files that can be read.
func (o *options) readRun(c *Config) {
	dropIns, _ := filepath.Glob(o.file + ".d/[!.]*.toml") // sorted
	for _, path := range append([]string{o.file}, dropIns...) {
		var keys struct{ Run string }
		if data, err := readConfigFile(path); err == nil && toml.Unmarshal(data, &keys) == nil && keys.Run != "" {
			c.Run = keys.Run
		}
	}
}
