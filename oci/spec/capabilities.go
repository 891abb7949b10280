package spec

import (
	"slices"
	"strings"

	"github.com/moby/sys/capability"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// DefaultCapabilities returns the capabilities of a container that requests none, unless the node's configuration has
// others: Docker's original set, which every runtime has kept.
func DefaultCapabilities() []string {
	return []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
		"CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SYS_CHROOT", "CAP_MKNOD", "CAP_AUDIT_WRITE", "CAP_SETFCAP",
	}
}

// knownCapabilities lists Linux's capabilities in the order of their numbers.
func knownCapabilities() []string {
	known := capability.ListKnown()
	names := make([]string, len(known))
	for i, c := range known {
		names[i] = "CAP_" + strings.ToUpper(c.String())
	}
	return names
}

// capabilities sets the five sets. The inheritable set holds the ambient capabilities only, although by the CRI added
// ones belong there too: files with inheritable bits would gain them (CVE-2022-24769).
func (b *builder) capabilities() error {
	known := knownCapabilities()
	want, ambient, err := b.wanted(known)
	if err != nil {
		return err
	}
	b.warnMissing(want, known)
	set := keep(known, func(c string) bool { return want[c] && slices.Contains(b.in.Host.Capabilities, c) })
	raised := keep(set, func(c string) bool { return ambient[c] })
	b.spec.Process.Capabilities = &specs.LinuxCapabilities{
		Bounding:    set,
		Effective:   clone(set),
		Permitted:   clone(set),
		Inheritable: raised,
		Ambient:     clone(raised),
	}
	return nil
}

// wanted applies ALL before single names, and removal after addition: "drop ALL, add X" is X alone, "add ALL, drop X"
// is every capability except X, and a capability both added and dropped is dropped.
func (b *builder) wanted(known []string) (want, ambient map[string]bool, err error) {
	var add, raise, drop []string
	c := b.sc.GetCapabilities()
	for _, l := range []struct {
		to   *[]string
		from []string
	}{{&add, c.GetAddCapabilities()}, {&raise, c.GetAddAmbientCapabilities()}, {&drop, c.GetDropCapabilities()}} {
		if *l.to, err = capabilityNames(l.from, known); err != nil {
			return nil, nil, err
		}
	}
	want, ambient = map[string]bool{}, map[string]bool{}
	if b.privileged {
		drop = nil // "All capabilities are added"
		add = append(add, all)
	}
	if !slices.Contains(drop, all) {
		put(want, b.in.Defaults.Capabilities, true)
		put(want, expand(add, known), true)
		put(ambient, expand(raise, known), true)
	}
	put(want, add, true)
	put(ambient, raise, true)
	put(want, drop, false)
	put(ambient, drop, false)
	for name, raised := range ambient {
		want[name] = want[name] || raised
	}
	return want, ambient, nil
}

// expand returns every capability if ALL is among the names, else none.
func expand(names, known []string) []string {
	if slices.Contains(names, all) {
		return known
	}
	return nil
}

// all is the name that stands for every capability.
const all = "ALL"

// capabilityNames returns the names in the form CAP_NET_ADMIN; Kubernetes sends them without the prefix.
func capabilityNames(list, known []string) ([]string, error) {
	out := make([]string, 0, len(list))
	for _, c := range list {
		name := strings.ToUpper(c)
		if name == all {
			out = append(out, name)
			continue
		}
		if !strings.HasPrefix(name, "CAP_") {
			name = "CAP_" + name
		}
		if !slices.Contains(known, name) {
			return nil, invalid("%q is not a Linux capability", c)
		}
		out = append(out, name)
	}
	return out, nil
}

func put(set map[string]bool, names []string, value bool) {
	for _, n := range names {
		set[n] = value
	}
}

// warnMissing warns of capabilities that podd itself does not hold. Those above the highest one held are newer than the
// kernel: they are reported only if the container requests them by name.
func (b *builder) warnMissing(want map[string]bool, known []string) {
	held := b.in.Host.Capabilities
	var last int
	for i, c := range known {
		if slices.Contains(held, c) {
			last = i
		}
	}
	missing := keep(known, func(c string) bool { return want[c] && !slices.Contains(held, c) })
	missing = slices.DeleteFunc(missing, func(c string) bool {
		return slices.Index(known, c) > last && !b.named(c)
	})
	if len(missing) > 0 {
		b.warn("capabilities: podd does not hold %s, the container runs without them", strings.Join(missing, ", "))
	}
}

// named reports whether the container requests the capability by name.
func (b *builder) named(name string) bool {
	c := b.sc.GetCapabilities()
	is := func(s string) bool { return "CAP_"+strings.TrimPrefix(strings.ToUpper(s), "CAP_") == name }
	return slices.ContainsFunc(c.GetAddCapabilities(), is) || slices.ContainsFunc(c.GetAddAmbientCapabilities(), is)
}

// keep returns the elements that f accepts, in order; nil for none.
func keep(list []string, f func(string) bool) []string {
	var out []string
	for _, s := range list {
		if f(s) {
			out = append(out, s)
		}
	}
	return out
}
