package main

import (
	"context"
	"errors"
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The networks of the pods, by what their bridge does with the pods' addresses: it translates them by packet filter
// rules that it makes for each pod (ipMasq), or it makes no rules. All else is the same.
const (
	masquerade = "masquerade"
	plain      = "plain"
)

func (p *plan) parseNetworks(list string) error {
	p.networks = nil
	for _, name := range split(list) {
		if name != masquerade && name != plain {
			return fmt.Errorf("-network: %q is none of %s, %s", name, masquerade, plain)
		}
		p.networks = append(p.networks, name)
	}
	if len(p.networks) == 0 {
		return errors.New("-network names no network")
	}
	return nil
}

// use gives pods by hand and those of all servers that network. There must be no pods. The servers are started again,
// because they read a changed configuration at different times.
func (b *bench) use(ctx context.Context, network string) error {
	if network == b.network {
		return nil
	}
	for _, s := range b.servers {
		if err := s.process.Stop(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if err := b.daemon.Masquerade(network == masquerade); err != nil {
		return err
	}
	for _, s := range b.servers {
		if err := errors.Join(s.process.Start(ctx), s.kubelet.answers(ctx)); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	b.network = network
	return b.floor.readNetwork()
}

// where names the handler and the network of a result.
func (b *bench) where(handler string) string { return handler + ", " + b.network }

// withReference calls f while podd has a pod whose container's files and configuration the floor copies. change edits
// the container; nil leaves it as it is.
func (b *bench) withReference(
	ctx context.Context, handler string, change func(*cri.ContainerConfig), f func() error,
) (err error) {
	if change == nil {
		change = func(*cri.ContainerConfig) {}
	}
	podd := b.servers[0]
	reference, err := podd.kubelet.upWith(ctx, handler, &timer{}, change)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, podd.kubelet.down(ctx, reference, &timer{})) }()
	if err := b.floor.copyFrom(handler, reference.container); err != nil {
		return fmt.Errorf("take the reference from podd: %w", err)
	}
	return f()
}
