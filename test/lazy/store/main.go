// Store is an additional layer store of containers/storage: the package store of stargz-snapshotter, whose own program
// stargz-store is a Go module that the module proxy does not have. It mounts a FUSE filesystem and serves layers from
// registries on loopback, over plain HTTP and without credentials, until it gets a signal to end.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/containerd/stargz-snapshotter/fs/config"
	"github.com/containerd/stargz-snapshotter/metadata/memory"
	"github.com/containerd/stargz-snapshotter/service/resolver"
	"github.com/containerd/stargz-snapshotter/store"
	"golang.org/x/sys/unix"
)

func main() {
	root := flag.String("root", "", "directory for what was fetched")
	background := flag.Bool("background", false, "fetch all of a layer in the background, too")
	flag.Parse()
	if err := serve(*root, flag.Arg(0), *background); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve mounts the store on a directory and unmounts it at SIGTERM.
func serve(root, mountpoint string, background bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	manager, err := store.NewLayerManager(ctx, root, resolver.RegistryHostsFromConfig(resolver.Config{}),
		memory.NewReader, config.Config{
			NoBackgroundFetch: !background, NoPrefetch: !background, NoPrometheus: true,
			BlobConfig: config.BlobConfig{MaxRetries: 1, MinWaitMSec: 1, MaxWaitMSec: 1},
		})
	if err != nil {
		return err
	}
	if err := store.Mount(ctx, mountpoint, manager, false); err != nil {
		return err
	}
	<-ctx.Done()
	return unix.Unmount(mountpoint, unix.MNT_DETACH)
}
