package main

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/podd-project/podd/cmd/podd/admin"
)

// dial returns a client of the CRI on a unix socket. It connects at the first call.
func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// daemon returns a client of the admin API of the daemon that the configuration describes.
func (o *options) daemon() (*admin.Client, error) {
	l, err := o.load()
	if err != nil {
		return nil, err
	}
	return admin.NewClient(admin.SocketPath(l.Run)), nil
}
