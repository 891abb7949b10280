package network

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

// GC detaches every pod that is not in use, and makes the plugins (CNI 1.1) release the resources of unknown pods.
// inUse must return every pod that may be attached; it is called while no attachment is in progress, and none can start
// before the collection ends. A record or plugin that fails does not stop the rest; the errors are joined.
//
// Setup has priority: after errdefs.ErrUnavailable the collection was not done, or not completely, and can be repeated.
func (c *CNI) GC(ctx context.Context, inUse func() []string) error {
	ctx, leave, err := c.gate.collect(ctx)
	if err != nil {
		return fmt.Errorf("CNI garbage collection: %w", err)
	}
	defer leave()
	ids, err := c.Attachments()
	if err != nil {
		return err
	}
	networks, keep := c.networks(ids), inUse()
	var errs []error
	for _, id := range ids {
		if slices.Contains(keep, id) {
			continue
		}
		if err := c.Teardown(ctx, id); err != nil {
			errs = append(errs, err)
			keep = append(slices.Clone(keep), id) // so that GC leaves the resources that its own DEL needs
		}
	}
	for _, list := range networks {
		if err := c.collect(ctx, list, keep); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// networks returns every known network: that of the configuration directory and those of the records, whose
// configuration may be gone. Of two with one name it returns the first.
func (c *CNI) networks(ids []string) []*libcni.NetworkConfigList {
	var lists []*libcni.NetworkConfigList
	if list, _, _, err := loadConf(c.cfg().ConfDir); err == nil {
		lists = append(lists, list)
	}
	for _, id := range ids {
		r, err := c.readRecord(id)
		if err != nil {
			continue // Teardown reports it
		}
		if !slices.ContainsFunc(lists, func(l *libcni.NetworkConfigList) bool { return l.Name == r.list.Name }) {
			lists = append(lists, r.list)
		}
	}
	return lists
}

func (c *CNI) collect(ctx context.Context, list *libcni.NetworkConfigList, keep []string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg().DelTimeout,
		fmt.Errorf("no answer within %v: %w", c.cfg().DelTimeout, context.DeadlineExceeded))
	defer cancel()
	args := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}} // never nil: that would be null, not an empty list
	for _, id := range keep {
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: id, IfName: ifName})
	}
	// libcni would also DEL the pods in its cache. Setup leaves none there: Teardown detaches them.
	if err := c.libcni(execOptions{}).GCNetworkList(ctx, list, args); err != nil {
		return fmt.Errorf("CNI garbage collection of network %s: %w", list.Name, err)
	}
	return nil
}
