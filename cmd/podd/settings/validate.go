package settings

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/tomlconfig"
	"github.com/podd-project/podd/sandbox/handler"
)

// problems collects the wrong keys of a configuration.
type problems struct {
	// origin returns which file or flag set a key.
	origin func(key string) string
	errs   []error
}

// add reports a problem of key, which includes the section; the names of entries of maps may be quoted. Format and args
// are those of fmt.Errorf.
func (p *problems) add(key, format string, args ...any) {
	key = tomlconfig.Key(key)
	p.errs = append(p.errs, fmt.Errorf("%s (%s): %w", key, p.origin(key), fmt.Errorf(format, args...)))
}

// in returns a function for the Validate of a package's Config, which reports a problem of a key in the section.
func (p *problems) in(section string) func(key string, err error) {
	return func(key string, err error) { p.add(section+"."+key, "%w", err) }
}

// validate returns an error for each wrong key, in the order of the keys. Origin returns which file or flag set a key.
func (c *Config) validate(origin func(key string) string) []error {
	p := &problems{origin: origin}
	for _, f := range []struct{ key, path string }{{"root", c.Root}, {"run", c.Run}, {"listen", c.Listen}} {
		if err := checkPath(f.path); err != nil {
			p.add(f.key, "%w", err)
		}
	}
	if err := c.ImageNode("").Validate(); err != nil {
		p.add("root", "%w", err)
	}
	if limit := 107; len(c.Listen) > limit { // sun_path
		p.add("listen", "%q is longer than the %d bytes of a unix socket's path", c.Listen, limit)
	}
	if path, limit := admin.SocketPath(c.Run), 107; len(path) > limit {
		p.add("run", "%q is longer than the %d bytes of a unix socket's path", path, limit)
	}
	if within(c.Root, c.Run) || within(c.Run, c.Root) {
		p.add("run", "%q and root %q must not contain each other", c.Run, c.Root)
	}
	c.Log.Validate(p.in("log"))
	c.Runtime.validate(p)
	c.NRI.Validate(p.in("nri"))
	c.Network.Validate(p.in("network"))
	c.Image.Validate(p.in("image"))
	c.Streaming.Validate(p.in("streaming"))
	c.Metrics.Validate(p.in("metrics"))
	if path := c.Metrics.SocketPath(); path != "" && path == c.Listen {
		p.add("metrics.address", "%q is the socket of the CRI service", path)
	}
	c.Cadvisor.Validate(p.in("cadvisor"))
	if path := c.Cadvisor.Socket; path != "" && (path == c.Listen || path == c.Metrics.SocketPath()) {
		p.add("cadvisor.socket", "%q is the socket of another service of podd", path)
	}
	c.Tracing.Validate(p.in("tracing"))
	return p.errs
}

func (c *RuntimeConfig) validate(p *problems) {
	c.Config.Validate(p.in("runtime"))
	switch c.CgroupDriver {
	case CgroupAuto, CgroupSystemd, CgroupCgroupfs:
	default:
		p.add("runtime.cgroup_driver", "%q is not one of auto, systemd, cgroupfs", c.CgroupDriver)
	}
	if err := checkProgram(c.Conmon); err != nil {
		p.add("runtime.conmon", "%w", err)
	}
	if c.CRIU != "" && filepath.Base(c.CRIU) != "criu" {
		p.add("runtime.criu", "%q: the file must have the name criu, by which runc looks for it", c.CRIU)
	} else if err := checkProgram(c.CRIU); c.CRIU != "" && err != nil {
		p.add("runtime.criu", "%w", err)
	}
	for _, dir := range c.SearchPath {
		if err := checkPath(dir); err != nil {
			p.add("runtime.search_path", "%w", err)
		}
	}
	c.validateRouting(p)
	for _, name := range slices.Sorted(maps.Keys(c.Handlers)) {
		c.Handlers[name].validate("runtime.handlers."+strconv.Quote(name), name, p)
	}
}

// validateRouting checks that every handler that a key names is configured.
func (c *RuntimeConfig) validateRouting(p *problems) {
	check := func(key, handler string) {
		if _, ok := c.Handlers[handler]; !ok {
			p.add(key, "unknown handler %q: configure [runtime.handlers.%s]", handler, handler)
		}
	}
	if _, named := c.Handlers[handler.Auto]; named && c.DefaultHandler == handler.Auto {
		p.add("runtime.default_handler", "%q stands for crun or runc, and there is a handler of that name: rename it",
			handler.Auto)
	}
	check("runtime.default_handler", c.Fallback())
	if c.HostAccessHandler != "" {
		check("runtime.host_access_handler", c.HostAccessHandler)
	}
	for _, annotation := range slices.Sorted(maps.Keys(c.AnnotationHandlers)) {
		check("runtime.annotation_handlers."+strconv.Quote(annotation), c.AnnotationHandlers[annotation])
	}
}

// handlerName matches the names that a RuntimeClass can select, which have at most 63 bytes: DNS labels.
var handlerName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// optionName matches the name of a runtime's flag.
var optionName = regexp.MustCompile(`^[a-zA-Z0-9][-_a-zA-Z0-9]*$`)

// reservedOptions are the runtime's flags that podd sets.
var reservedOptions = []string{"root", "systemd-cgroup", "log", "log-format"}

func (h HandlerTable) validate(key, name string, p *problems) {
	if len(name) > 63 || !handlerName.MatchString(name) {
		p.add(key, "%q is not a DNS label (a-z, 0-9, -), as the handler of a RuntimeClass must be", name)
	}
	if h.Path != "" {
		if err := checkProgram(h.Path); err != nil {
			p.add(key+".path", "%w", err)
		}
	}
	h.validateType(key, p)
	for _, option := range slices.Sorted(maps.Keys(h.Options)) {
		if !optionName.MatchString(option) {
			p.add(key+".options."+strconv.Quote(option), "%q is not the name of a flag", option)
		} else if slices.Contains(reservedOptions, option) {
			p.add(key+".options."+strconv.Quote(option), "%q is reserved: podd sets it", option)
		}
	}
	engine, err := h.engine()
	if err != nil {
		p.add(key+".base_runtime_spec", "%w", err)
	}
	engine.Validate(p.in(key))
	for _, dir := range []struct{ key, path string }{
		{".root", h.Root}, {".cni_conf_dir", h.CNIConfDir}, {".base_runtime_spec", h.BaseRuntimeSpec},
	} {
		if dir.path == "" {
			continue
		}
		if err := checkPath(dir.path); err != nil {
			p.add(key+dir.key, "%w", err)
		}
	}
}

// validateType checks type and the keys that only one type has.
func (h HandlerTable) validateType(key string, p *problems) {
	switch h.Type {
	case "", TypeOCI:
		if h.Runtime != "" || h.ConfigPath != "" {
			p.add(key, "runtime and config_path can only be set with type = \"shim\"")
		}
	case TypeShim:
		if h.Runtime != "" {
			if err := checkProgram(h.Runtime); err != nil {
				p.add(key+".runtime", "%w", err)
			}
		}
		if h.ConfigPath != "" {
			if err := checkPath(h.ConfigPath); err != nil {
				p.add(key+".config_path", "%w", err)
			}
		}
	default:
		p.add(key+".type", "%q is neither oci nor shim", h.Type)
	}
}

// checkPath requires a clean absolute path: podd compares paths with the kernel's mount table.
func checkPath(path string) error {
	switch {
	case path == "":
		return errors.New("is empty, want an absolute path")
	case !filepath.IsAbs(path):
		return fmt.Errorf("%q is relative, want an absolute path", path)
	case path != filepath.Clean(path):
		return fmt.Errorf("%q is not a clean path, want %q", path, filepath.Clean(path))
	case path == "/":
		return errors.New("must not be the root directory")
	case strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("%q contains a control character", path)
	}
	return nil
}

// checkProgram requires a clean absolute path or a name without slashes.
func checkProgram(program string) error {
	if program != "" && !strings.Contains(program, "/") && program != "." && program != ".." {
		return nil
	}
	return checkPath(program)
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
