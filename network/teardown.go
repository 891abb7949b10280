package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"github.com/podd-project/podd/network/reference"
)

// Teardown detaches a pod: it runs CNI DEL with the configuration and arguments of ADD, even if the configuration
// directory has changed and the namespace is gone, and removes the record. A pod without a record is already detached.
// After an error the record still exists and Teardown must be called again; after ErrDamaged, Abandon.
func (c *CNI) Teardown(ctx context.Context, podID string) error {
	if err := checkPodID(podID); err != nil {
		return err
	}
	release, err := c.pods.Lock(ctx, podID)
	if err != nil {
		return fmt.Errorf("wait for the pod's network: %w", err)
	}
	defer release()
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	record, err := c.readRecord(podID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = c.del(ctx, record, c.skippable())
	if err != nil && (record.Failed && c.mendConf(record) || c.dropUninstalled(record)) {
		err = c.del(ctx, record, c.skippable())
	}
	if err != nil {
		return err
	}
	return c.removeRecord(podID)
}

// mendConf replaces the configuration of an attachment that failed by the present one of that network, if that is
// another: a plugin that refuses a value of its configuration does so at ADD and at each DEL.
func (c *CNI) mendConf(r *record) (mended bool) {
	list, _, _, err := loadConf(c.confDir(r.ConfDir))
	if err != nil || list.Name != r.list.Name || bytes.Equal(list.Bytes, r.list.Bytes) {
		return false
	}
	r.list = list
	if result, err := normalize(r.Result, list.CNIVersion); err == nil {
		r.Result = result
	}
	return true
}

// dropUninstalled removes the plugins that are neither installed nor in the present configuration of the network: a
// chained plugin that was uninstalled (istio/istio.io#16748).
func (c *CNI) dropUninstalled(r *record) (dropped bool) {
	list, _, _, err := loadConf(c.confDir(r.ConfDir))
	if err != nil || list.Name != r.list.Name {
		return false
	}
	find, left := c.newExec(execOptions{}), *r.list
	left.Plugins = slices.DeleteFunc(slices.Clone(left.Plugins), func(p *libcni.PluginConfig) bool {
		if p == r.list.Plugins[0] { // it has the addresses
			return false
		}
		_, err := find.FindInPath(p.Network.Type, c.cfg().BinDirs)
		gone := err != nil && !slices.ContainsFunc(list.Plugins, func(now *libcni.PluginConfig) bool {
			return now.Network.Type == p.Network.Type
		})
		if gone {
			c.log.WithField("pod", r.PodID).WithError(err).
				Warn("a CNI plugin was uninstalled, its resources of the pod may be left over")
		}
		return gone
	})
	dropped = len(left.Plugins) < len(r.list.Plugins)
	r.list = &left
	return dropped
}

// del runs the plugins except those that may be skipped.
func (c *CNI) del(ctx context.Context, r *record, idle *reference.Idle) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg().DelTimeout,
		fmt.Errorf("no answer within %v: %w", c.cfg().DelTimeout, context.DeadlineExceeded))
	defer cancel()
	lock, err := c.lockDel(ctx, r.PodID)
	if err != nil {
		return err
	}
	defer lock.Close()
	netns, done := c.delNetns(ctx, r)
	defer done()
	list, err := r.listForDel()
	if err != nil {
		return fmt.Errorf("CNI network %s: %w", r.list.Name, err)
	}
	driver := c.libcni(execOptions{idle: idle, delLock: lock})
	err = driver.DelNetworkList(ctx, list, r.runtimeConf(netns))
	for netns == "" && needsNetns(err) && len(list.Plugins) > 0 {
		c.log.WithField("pod", r.PodID).WithError(err).
			Warn("failed to call a CNI plugin without a network namespace, resources of the pod may be left over")
		list.Plugins = list.Plugins[:len(list.Plugins)-1] // the last is called first; the others may still free theirs
		err = driver.DelNetworkList(ctx, list, r.runtimeConf(netns))
	}
	if err != nil {
		return fmt.Errorf("CNI network %s: %w", r.list.Name, err)
	}
	return nil
}

// needsNetns reports whether a plugin has tried to open the namespace "", which CNI allows for DEL. It would fail
// forever (containernetworking/plugins#210).
func needsNetns(err error) bool {
	return err != nil && (strings.Contains(err.Error(), `"": no such file or directory`) ||
		strings.Contains(err.Error(), "open : no such file or directory"))
}

// listForDel returns the recorded configuration with the recorded result in it: libcni only has the result of an ADD
// whose plugins all succeeded, and the plugin firewall removes nothing without it.
func (r *record) listForDel() (*libcni.NetworkConfigList, error) {
	if len(r.Result) == 0 || !atLeast(r.list, "0.4.0") {
		return r.list, nil
	}
	list := *r.list
	list.Plugins = nil
	for _, p := range r.list.Plugins {
		with, err := libcni.InjectConf(p, map[string]any{"prevResult": r.Result})
		if err != nil {
			return nil, err
		}
		list.Plugins = append(list.Plugins, with)
	}
	return &list, nil
}
