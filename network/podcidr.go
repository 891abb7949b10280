package network

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/network/template"
)

// podCIDRConf is the name of the file that is generated from the template.
const podCIDRConf = "10-podd.conflist"

// podCIDRData is the data of a template; the names are those of containerd's templates.
type podCIDRData struct {
	// PodCIDR is the first range, PodCIDRRanges are all of them: one per IP family.
	PodCIDR       string
	PodCIDRRanges []string
	// Routes are the default routes of the ranges' families.
	Routes []string
}

// SetPodCIDR sets the node's pod address ranges, as sent by the kubelet: one, or several separated by commas. With a
// template configured it writes the resulting CNI configuration, atomically, unless the directory holds a valid one
// that podd did not write: then CNI is configured by other means. An empty cidr is ignored. Errors are
// errdefs.ErrInvalidArgument for malformed ranges, errdefs.ErrFailedPrecondition for a template that fails.
func (c *CNI) SetPodCIDR(ctx context.Context, cidr string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if cidr == "" {
		return nil
	}
	data, err := parsePodCIDR(cidr)
	if err != nil {
		return err
	}
	normal := strings.Join(data.PodCIDRRanges, ",")
	c.cidr.Store(&normal)
	if c.cfg().ConfTemplate == "" || c.configuredByOthers() {
		return nil
	}
	conf, err := renderConf(c.cfg().ConfTemplate, data)
	if err != nil {
		return fmt.Errorf("%w: CNI template %s: %w", errdefs.ErrFailedPrecondition, c.cfg().ConfTemplate, err)
	}
	if err := writeConf(filepath.Join(c.cfg().ConfDir, podCIDRConf), conf); err != nil {
		return fmt.Errorf("write CNI configuration: %w", err)
	}
	c.health.wake()
	return nil
}

// PodCIDR returns the ranges last set, "" before that.
func (c *CNI) PodCIDR() string {
	if p := c.cidr.Load(); p != nil {
		return *p
	}
	return ""
}

func parsePodCIDR(cidr string) (podCIDRData, error) {
	var d podCIDRData
	for text := range strings.SplitSeq(cidr, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return d, invalid("pod CIDR %.80q is not an address range", text)
		}
		d.PodCIDRRanges = append(d.PodCIDRRanges, prefix.Masked().String())
		route := "0.0.0.0/0"
		if prefix.Addr().Is6() {
			route = "::/0"
		}
		if !slices.Contains(d.Routes, route) {
			d.Routes = append(d.Routes, route)
		}
	}
	d.PodCIDR = d.PodCIDRRanges[0]
	return d, nil
}

// configuredByOthers reports whether the first valid configuration is a file that podd did not write.
func (c *CNI) configuredByOthers() bool {
	entries, err := os.ReadDir(c.cfg().ConfDir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if !confName(e.Name()) {
			continue
		}
		if e.Name() == podCIDRConf {
			return false
		}
		if _, err := readConf(filepath.Join(c.cfg().ConfDir, e.Name())); err == nil {
			c.log.WithField("file", e.Name()).Info("CNI is already configured, not using the template")
			return true
		}
	}
	return false
}

// renderConf executes the template and checks that the result is a CNI configuration.
func renderConf(path string, data podCIDRData) ([]byte, error) {
	text, err := readCapped(path)
	if err != nil {
		return nil, err
	}
	conf, err := template.Fill(filepath.Base(path), string(text), template.Data{
		"PodCIDR": data.PodCIDR, "PodCIDRRanges": data.PodCIDRRanges, "Routes": data.Routes,
	})
	if err != nil {
		return nil, err
	}
	list, err := parseConf(conf)
	if err != nil {
		return nil, err
	}
	if _, err := flatten(list); err != nil {
		return nil, err
	}
	return conf, nil
}

// writeConf writes the file at path unless it has this content already. Other programs read it, so its mode is 0644.
func writeConf(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return checkpoint.WriteFileSync(path, data, 0o644)
}
