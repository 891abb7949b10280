package cgroups

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Details returns the values that are rarely read. Errors are those of Read.
func (g *Group) Details() (Details, error) {
	if err := g.begin(); err != nil {
		return Details{}, err
	}
	defer g.end()
	d := Details{At: time.Now()}
	var err error
	for _, step := range []func() error{
		func() error { d.Events, err = g.memoryEvents(); return err },
		func() error { d.IO, err = g.io(); return err },
		func() error { d.Hugepages, err = g.hugepages(); return err },
		func() error { d.Limits, err = g.limits(); return err },
		func() error { d.Processes, err = g.processes(); return err },
	} {
		if err := step(); err != nil {
			return Details{}, fmt.Errorf("details of cgroup %s: %w", g.path, err)
		}
	}
	return d, nil
}

// value reads one number; it returns absent if the file does not exist.
func (p place) value(name string, absent uint64) (uint64, error) {
	if p.dir == "" {
		return absent, nil
	}
	text, err := p.tree.readFile(p.dir + "/" + name)
	if err != nil || len(text) == 0 {
		return absent, err
	}
	return number(text), nil
}

// text reads one file; it returns "" if the file does not exist.
func (p place) text(name string) (string, error) {
	if p.dir == "" {
		return "", nil
	}
	text, err := p.tree.readFile(p.dir + "/" + name)
	return strings.TrimSpace(string(text)), err
}

func (g *Group) memoryEvents() (MemoryEvents, error) {
	var e MemoryEvents
	p := g.places["memory"]
	names := choose(p.v2,
		[...]string{"memory.peak", "memory.events"},
		[...]string{"memory.max_usage_in_bytes", "memory.oom_control"})
	peak, err := p.value(names[0], 0)
	if err != nil {
		return e, err
	}
	events, err := p.text(names[1])
	if err != nil {
		return e, err
	}
	e.Peak = peak
	pairs([]byte(events), func(key []byte, n uint64) {
		switch string(key) {
		case "oom_kill":
			e.OOMKills = n
		case "max":
			e.Failures = n
		}
	})
	if !p.v2 {
		e.Failures, err = p.value("memory.failcnt", 0)
	}
	return e, err
}

func (g *Group) io() ([]IO, error) {
	p := g.places["blkio"]
	devices := ioDevices{}
	if p.v2 {
		text, err := p.text("io.stat")
		devices.v2(text)
		return g.tree.named(devices), err
	}
	for _, f := range []struct {
		name string
		set  func(d *IO, operation string, n uint64)
	}{
		{"blkio.throttle.io_service_bytes", (*IO).setBytes}, {"blkio.throttle.io_serviced", (*IO).setOperations},
	} {
		text, err := p.text(f.name + "_recursive")
		if text == "" && err == nil {
			text, err = p.text(f.name) // older kernels
		}
		if err != nil {
			return nil, err
		}
		devices.v1(text, f.set)
	}
	return g.tree.named(devices), nil
}

func (d *IO) setBytes(operation string, n uint64) {
	switch operation {
	case "Read":
		d.ReadBytes = n
	case "Write":
		d.WriteBytes = n
	}
}

func (d *IO) setOperations(operation string, n uint64) {
	switch operation {
	case "Read":
		d.Reads = n
	case "Write":
		d.Writes = n
	}
}

// ioDevices has the I/O of devices by "major:minor".
type ioDevices map[string]*IO

func (d ioDevices) device(id string) *IO {
	major, minor, ok := strings.Cut(id, ":")
	if !ok {
		return nil // v1's last line: "Total 4096"
	}
	if d[id] == nil {
		d[id] = &IO{Major: number([]byte(major)), Minor: number([]byte(minor))}
	}
	return d[id]
}

// v1 parses lines such as "8:0 Read 4096".
func (d ioDevices) v1(text string, set func(*IO, string, uint64)) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		if device := d.device(fields[0]); device != nil {
			set(device, fields[1], number([]byte(fields[2])))
		}
	}
}

// v2 parses lines such as "8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0".
func (d ioDevices) v2(text string) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		device := d.device(fields[0])
		for _, f := range fields[1:] {
			key, value, _ := strings.Cut(f, "=")
			if device != nil {
				device.set(key, number([]byte(value)))
			}
		}
	}
}

func (d *IO) set(key string, n uint64) {
	switch key {
	case "rbytes":
		d.ReadBytes = n
	case "wbytes":
		d.WriteBytes = n
	case "rios":
		d.Reads = n
	case "wios":
		d.Writes = n
	}
}

// named returns the devices with their names, in the order of their numbers.
func (t *Tree) named(devices ioDevices) []IO {
	var out []IO
	for _, d := range devices {
		d.Name = t.Device(d.Major, d.Minor)
		out = append(out, *d)
	}
	slices.SortFunc(out, func(a, b IO) int {
		if a.Major != b.Major {
			return int(a.Major) - int(b.Major)
		}
		return int(a.Minor) - int(b.Minor)
	})
	return out
}

// Device returns the name of a block device below /dev, e.g. "sda1", "block/8:16" if the kernel has no name for it any
// more, or "" for major number 0, filesystems without a device.
func (t *Tree) Device(major, minor uint64) string {
	if major == 0 {
		return ""
	}
	id := strconv.FormatUint(major, 10) + ":" + strconv.FormatUint(minor, 10)
	if name, ok := t.devices.Load(id); ok {
		return name.(string)
	}
	link, err := os.Readlink(filepath.Join(t.sys, "dev/block", id))
	if err != nil {
		return "block/" + id
	}
	name := filepath.Base(link)
	t.devices.Store(id, name)
	return name
}

func (g *Group) hugepages() ([]Hugepages, error) {
	p := g.places["hugetlb"]
	if p.dir == "" {
		return nil, nil
	}
	names := choose(p.v2,
		[...]string{".current", "", ".max"},
		[...]string{".usage_in_bytes", ".max_usage_in_bytes", ".limit_in_bytes"})
	var out []Hugepages
	for _, size := range p.pageSizes(names[0]) {
		h, err := p.hugepage(size, names)
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}

// pageSizes returns the sizes in the names of the files. They are the same in all groups until the machine reboots.
func (p place) pageSizes(suffix string) []string {
	if sizes, ok := p.tree.sizes.Load().([]string); ok {
		return sizes
	}
	files, _ := filepath.Glob(filepath.Join(p.dir, "hugetlb.*"+suffix)) // the pattern is well-formed
	var sizes []string
	for _, f := range files {
		size := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "hugetlb."), suffix)
		if !strings.Contains(size, ".") { // "2MB.rsvd", "2MB.max"
			sizes = append(sizes, size)
		}
	}
	if len(sizes) > 0 {
		p.tree.sizes.Store(sizes)
	}
	return sizes
}

func (p place) hugepage(size string, names [3]string) (Hugepages, error) {
	h := Hugepages{Size: size}
	prefix := "hugetlb." + size
	var err error
	if h.Usage, err = p.value(prefix+names[0], 0); err != nil {
		return h, err
	}
	if h.Limit, err = p.value(prefix+names[2], Unlimited); err != nil {
		return h, err
	}
	if !p.v2 {
		h.Peak, err = p.value(prefix+names[1], 0)
	}
	return h, err
}

// Processes returns the ids of all processes in the group and below.
func (g *Group) Processes() ([]int, error) {
	if err := g.begin(); err != nil {
		return nil, err
	}
	defer g.end()
	return g.processes()
}

func (g *Group) processes() ([]int, error) {
	dir := g.processPlace().dir
	w := processWalk{tree: g.tree, groups: maxGroups}
	err := w.group(dir, 0)
	if err == nil && len(w.pids) == 0 && !isDir(dir) {
		err = errdefs.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("processes of cgroup %s: %w", g.path, err)
	}
	return w.pids, nil
}

// The bounds of the tree below a group: a container may create any number of groups.
const (
	maxDepth  = 64
	maxGroups = 4096
)

// processWalk collects processes. It skips groups that are removed during the walk.
type processWalk struct {
	tree   *Tree
	groups int // left until the bound
	pids   []int
}

func (w *processWalk) group(dir string, depth int) error {
	if w.groups--; w.groups < 0 || depth > maxDepth {
		return fmt.Errorf("%w: too many groups below", errdefs.ErrResourceExhausted)
	}
	text, err := w.tree.readFile(dir + "/cgroup.procs")
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	for line := range bytes.FieldsSeq(text) {
		w.pids = append(w.pids, int(number(line)))
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil || st.Nlink == 2 { // 2: no directory below
		return nil
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := w.group(filepath.Join(dir, e.Name()), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// processPlace returns the group in a hierarchy in which its processes can be listed. All of them list the same.
func (g *Group) processPlace() place {
	for _, controller := range controllers() {
		if p, ok := g.places[controller]; ok {
			return p
		}
	}
	return g.unified
}
