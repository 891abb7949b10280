package main

import (
	"errors"
	"path/filepath"

	"github.com/pelletier/go-toml/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/tomlconfig"
)

// dial returns a client of the CRI on a unix socket. It connects at the first call.
func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// daemon returns a client of the admin API of the daemon that the configuration describes. Only the key run matters: a
// daemon goes on with its present configuration while the files are wrong, and has to say so.
func (o *options) daemon() (*admin.Client, error) {
	l, err := o.load()
	if err == nil {
		return admin.NewClient(admin.SocketPath(l.Run)), nil
	}
	c := defaultConfig()
	o.readRun(&c)
	if wrong := o.apply(tomlconfig.New(&c)); len(wrong) > 0 {
		return nil, configError{errors.Join(wrong...)}
	}
	return admin.NewClient(admin.SocketPath(c.Run)), nil
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
