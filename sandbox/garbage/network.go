package garbage

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/sandbox/namespaces"
	"github.com/podd-project/podd/sandbox/record"
)

func (m *Machine) freeAttachment(ctx context.Context, id string) error {
	err := m.Network.Teardown(ctx, id)
	if errors.Is(err, network.ErrDamaged) {
		err = m.Abandon(ctx, id)
	}
	return err
}

// Abandon detaches a pod whose record of the network is damaged or lost.
func (m *Machine) Abandon(ctx context.Context, id string) error {
	pins, err := m.netnsPins()
	if err != nil {
		return err
	}
	return m.Network.Abandon(ctx, network.Request{PodID: id, Netns: cmp.Or(pins[id], m.Paths.Netns(id))})
}

func (m *Machine) pinnedNetns(context.Context) ([]string, error) {
	pins, err := m.netnsPins()
	return slices.Collect(maps.Keys(pins)), err
}

func (m *Machine) freeNetns(ctx context.Context, id string) error {
	pins, err := m.netnsPins()
	if err != nil || pins[id] == "" {
		return err
	}
	return m.Namespaces.Unpin(ctx, pins[id])
}

// netnsPins returns the pin files of network namespaces by pod: those in podd's own directory, and those elsewhere that
// a pod's directory claims. Other programs and other podds have files there too.
func (m *Machine) netnsPins() (map[string]string, error) {
	pins := map[string]string{}
	own, err := m.Namespaces.Pinned(m.Paths.OwnNetns())
	if err != nil {
		return nil, err
	}
	for _, path := range own {
		if id := filepath.Base(path); !strings.HasPrefix(id, record.NetnsPrefix) {
			pins[id] = path
		}
	}
	ids, err := record.Names(m.Paths.PodRuns())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, id := range ids {
		pin := namespaces.Claimed(m.Paths.ClaimLink(id))
		if filepath.Base(pin) == record.NetnsPrefix+id {
			pins[id] = pin
		}
	}
	return pins, err
}
