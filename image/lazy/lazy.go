// Package lazy asks an additional layer store (containers-storage.conf(5)) for layers that are fetched when they are
// read: it looks layers up, checks and releases them, and mounts filesystems of them.
//
// The store is another program's FUSE filesystem, which may hang or lie. Neither podd nor a pull's process touch its
// files: Client, in the daemon, starts a process for each question. It knows no index and no storage. image calls it.
package lazy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/image/layers"
	"github.com/podd-project/podd/image/rootfs"
)

// maxUnused bounds the layers that wait to be released.
const maxUnused = 256

// Client asks the additional layer store. All methods may be called concurrently.
type Client struct {
	// root returns the store's mount point, empty if there is none.
	root func() string
	log  logrus.FieldLogger
	// asking and releasing have a place for each process that asks the store.
	asking, releasing chan struct{}
	unused            chan layers.Lazy
}

// New returns a client of the store at root, which may change.
func New(root func() string, log logrus.FieldLogger) *Client {
	return &Client{
		root: root, log: log, asking: make(chan struct{}, maxAsking), releasing: make(chan struct{}, 1),
		unused: make(chan layers.Lazy, maxUnused),
	}
}

// GoneError is the error of a layer that the store does not serve: its image must be fetched as a whole.
type GoneError struct{ reason string }

func (e GoneError) Error() string { return e.reason }

// notServed is why a layer is gone.
func notServed(reason string) string {
	return "the additional layer store does not serve it: " + reason
}

// unavailable is an error for an image whose store may serve it later.
func unavailable(image string, reason error) error {
	return fmt.Errorf("image %s was pulled lazily, and the additional layer store does not answer: %w: start the "+
		"store; if it is gone for good, unset additional_layer_store, reload podd, try again and pull the image: %w",
		image, reason, errdefs.ErrUnavailable)
}

// Mount mounts a filesystem of an image, of whose layers some are in the store: those of lazy that are not nil, top
// first. Errors: GoneError; errdefs.ErrUnavailable if the store does not answer.
func (c *Client) Mount(ctx context.Context, image string, o rootfs.Overlay, lazy []*layers.Lazy) error {
	if o.ShiftsIDs() {
		return GoneError{"the files of an additional layer store cannot be used in a user namespace"}
	}
	root := c.root()
	if root == "" {
		return GoneError{"its files are in a store of layers, and additional_layer_store is not set"}
	}
	answers, err := c.ask(ctx, job{Root: root, Mount: &mount{
		Dir: o.Dir, Lowers: o.Lowers, Lazy: lazy, Writable: o.Writable, Label: o.Label,
	}})
	switch {
	case errors.Is(err, errHangs):
		return unavailable(image, err)
	case err != nil:
		return err
	case len(answers) != 1:
		return errors.New("the process that mounts layers of the additional layer store ended without an answer")
	case answers[0].Gone:
		return GoneError{notServed(answers[0].Error)}
	case answers[0].Unavailable:
		return unavailable(image, errors.New(answers[0].Error))
	case answers[0].Error != "":
		return errors.New(answers[0].Error)
	}
	return nil
}

// Check returns which layers of an image, by id, the store answers not to have, with the reason. It fails with
// errdefs.ErrUnavailable if the store does not answer.
func (c *Client) Check(ctx context.Context, image string, of map[string]layers.Lazy) (map[string]string, error) {
	gone, ids := map[string]string{}, slices.Sorted(maps.Keys(of))
	ask := job{Root: c.root()}
	if ask.Root == "" {
		for _, id := range ids {
			gone[id] = notServed("additional_layer_store is not set")
		}
		return gone, nil
	}
	for _, id := range ids {
		ask.Check = append(ask.Check, of[id])
	}
	answers, err := c.ask(ctx, ask)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for i, a := range answers[:min(len(answers), len(ids))] {
		switch {
		case a.Gone:
			gone[ids[i]] = notServed(a.Error)
		case a.Error != "" && err == nil:
			err = errors.New(a.Error)
		}
	}
	if err == nil && len(answers) < len(ids) {
		err = errors.New("the process that asks it ended without an answer")
	}
	if err != nil {
		return nil, unavailable(image, err)
	}
	return gone, nil
}

// Release tells the store, in the background, that a layer is no longer used.
func (c *Client) Release(l layers.Lazy) {
	select {
	case c.unused <- l:
	default: // the store keeps it until it ends
	}
}

// Run releases layers until ctx ends.
func (c *Client) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case l := <-c.unused:
			root := c.root()
			if root == "" {
				continue
			}
			if _, err := c.ask(ctx, job{Root: root, Release: []layers.Lazy{l}}); err != nil {
				c.log.WithError(err).Debug("failed to release a layer of the additional layer store")
			}
		}
	}
}
