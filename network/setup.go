package network

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
)

// Setup attaches a pod: it records the attachment, brings the loopback interface up, runs CNI ADD and records the
// result. The record is synced while the plugins run, and on disk when Setup returns without an error. If Setup fails,
// a record is left if and only if something may have been done; Teardown undoes that.
//
// Errors: errdefs.ErrInvalidArgument for a request that can never succeed, errdefs.ErrAlreadyExists for a pod that has
// a record, errdefs.ErrUnavailable without a usable configuration, context.DeadlineExceeded for a plugin that hung.
func (c *CNI) Setup(ctx context.Context, r Request) (Result, error) {
	if err := r.Validate(); err != nil {
		return Result{}, err
	}
	release, err := c.pods.Lock(ctx, r.PodID)
	if err != nil {
		return Result{}, fmt.Errorf("wait for the pod's network: %w", err)
	}
	defer release()
	leave, err := c.gate.attach(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("wait for CNI garbage collection: %w", err)
	}
	defer leave()

	record, err := c.newAttachment(ctx, r)
	if err != nil {
		return Result{}, err
	}
	result, err := c.attach(ctx, record)
	// Also after a failure: a sync must not end after Teardown has removed the record.
	if err = cmp.Or(err, record.syncs.Wait()); err != nil {
		return Result{}, err
	}
	return result, nil
}

// newAttachment checks that the pod can be attached and returns its record.
func (c *CNI) newAttachment(ctx context.Context, r Request) (*record, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	switch _, err := os.Lstat(c.recordPath(r.PodID)); {
	case err == nil:
		return nil, fmt.Errorf("%w: network attachment of pod %s", errdefs.ErrAlreadyExists, r.PodID)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("network attachment: %w", err)
	}
	ns, err := openNetns(r.Netns)
	if err != nil {
		return nil, fmt.Errorf("pod network: %w", err)
	}
	ns.Close()
	list, _, err := c.choice.load(c.confDir(r.ConfDir))
	if err != nil {
		return nil, err
	}
	if err := c.missingPlugin(list); err != nil {
		return nil, fmt.Errorf("%w: %w", errdefs.ErrUnavailable, err)
	}
	record := newRecord(r, list)
	record.warnUnsupported(c.log)
	return record, nil
}

// confDir returns the directory with a pod's CNI configuration; own is that of its handler, "" for none.
func (c *CNI) confDir(own string) string { return cmp.Or(own, c.cfg().ConfDir) }

// attach records the attachment and makes it.
func (c *CNI) attach(ctx context.Context, r *record) (Result, error) {
	if err := c.writeRecord(r); err != nil {
		return Result{}, err
	}
	if err := loopbackUp(r.Netns); err != nil {
		return Result{}, err
	}
	return c.add(ctx, r)
}

// warnUnsupported logs a warning if no plugin publishes the pod's ports or limits its rates. It is not an error: some
// networks serve host ports without CNI.
func (r *record) warnUnsupported(log logrus.FieldLogger) {
	for _, capability := range []string{"portMappings", "bandwidth"} {
		if r.Capabilities[capability] == nil {
			continue
		}
		known := false
		for _, p := range r.list.Plugins {
			known = known || p.Network.Capabilities[capability]
		}
		if !known {
			log.WithFields(logrus.Fields{"pod": r.PodID, "network": r.list.Name, "capability": capability}).
				Warn("pod requests a capability that no CNI plugin of its network has")
		}
	}
}

// add runs the plugins. The record is written after each plugin that changes the result: if a later one fails or the
// daemon crashes, DEL still has the prevResult for the plugins.
func (c *CNI) add(ctx context.Context, r *record) (Result, error) {
	if err := c.runAdd(ctx, r, func() error { return c.writeRecord(r) }); err != nil {
		r.Failed = true
		return Result{}, errors.Join(fmt.Errorf("CNI network %s: %w", r.list.Name, err), c.writeRecord(r))
	}
	c.dropCache(r.list.Name, r.PodID)
	result, err := parseResult(r.Result, c.cfg().IPPreference)
	if err != nil {
		return Result{}, fmt.Errorf("CNI network %s: %w", r.list.Name, err)
	}
	return result, nil
}

// runAdd runs ADD of the plugins. changed is called when one has changed the result, before the next is run.
func (c *CNI) runAdd(ctx context.Context, r *record, changed func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg().AddTimeout,
		fmt.Errorf("no answer within %v: %w", c.cfg().AddTimeout, context.DeadlineExceeded))
	defer cancel()
	driver := c.libcni(execOptions{idle: c.skippable(), onAdd: func(_, stdout []byte) error {
		result, err := normalize(stdout, r.list.CNIVersion)
		if err != nil || bytes.Equal(result, r.Result) { // as with portmap and a pod without ports
			return err
		}
		r.Result = result
		return changed()
	}})
	_, err := driver.AddNetworkList(ctx, r.list, r.runtimeConf(r.Netns))
	return err
}
