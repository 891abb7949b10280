// Command testimages builds the test images, and serves or exports them.
//
//	testimages build                          build them, unless the cache has them, and list their names
//	testimages serve ADDR CONFDIR [MORE...]   serve them on ADDR until SIGTERM or SIGINT
//	testimages export NAME REF DIR            write one image as an OCI layout
//
// serve writes registries.conf and policy.json to CONFDIR. When it is ready it prints "credentials wanted on ADDR", the
// address that requires authentication, and "serving on ADDR"; test/k8s/cluster parses these lines. MORE are images
// that only test/k8s needs: agnhost=DIR, a directory with the program agnhost, for the images of Kubernetes' node
// tests, and NAME=DIR with the programs of an add-on: coredns, multus, kube-state-metrics, metrics-server,
// node-exporter, local-path-provisioner, prometheus.
//
// It is for scripts (contrib/demo.sh, test/critest); tests use the package.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/podd-project/podd/test/images"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "testimages:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	path, err := images.Build(ctx)
	if err != nil {
		return err
	}
	switch {
	case len(args) == 1 && args[0] == "build":
		names, err := images.Names(path)
		for _, n := range names {
			fmt.Println(n)
		}
		return err
	case len(args) >= 3 && args[0] == "serve":
		return serve(ctx, args[1], args[2], args[3:]...)
	case len(args) == 4 && args[0] == "export":
		return images.Export(path, args[1], args[2], args[3])
	}
	return errors.New("usage: testimages build | serve ADDR CONFDIR [MORE...] | export NAME REF DIR")
}

func serve(ctx context.Context, addr, confDir string, more ...string) error {
	path, err := images.Build(ctx)
	if err != nil {
		return err
	}
	r, err := images.Listen(path, addr)
	if err != nil {
		return err
	}
	defer r.Close()
	for _, m := range more {
		if err := add(r, path, m); err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
	}
	if _, _, err := r.WriteConf(confDir); err != nil {
		return err
	}
	fmt.Println("credentials wanted on", r.AuthAddr)
	fmt.Println("serving on", r.Addr)
	<-ctx.Done()
	return nil
}

// add adds the images of one argument MORE.
func add(r *images.Registry, path layout.Path, more string) error {
	name, dir, _ := strings.Cut(more, "=")
	if name == "agnhost" {
		return r.AddAgnhost(path, dir)
	}
	return r.AddAddon(path, name, dir)
}
