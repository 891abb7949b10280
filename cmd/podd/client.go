package main

import (
	"time"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/settings"
)

// callTimeout bounds a call that the daemon answers from memory.
const callTimeout = 10 * time.Second

// client returns a client of the admin API of the daemon that the configuration describes. A wrong configuration is not
// an error unless a flag is wrong: the daemon goes on with its former one, and has to say so.
func client(opts *settings.Flags) (*admin.Client, error) {
	run, err := opts.RunDir()
	if err != nil {
		return nil, err
	}
	return admin.NewClient(admin.SocketPath(run)), nil
}
