package spec

import (
	"cmp"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	defaultTerm = "TERM=xterm"
)

// env merges podd's defaults, the node's, the image's variables and the container's; later ones win.
func (b *builder) env() error {
	e := environ{at: map[string]int{}}
	e.set(defaultPath)
	for _, kv := range b.in.Defaults.Env {
		e.set(kv)
	}
	if b.in.Config.GetTty() {
		e.set(defaultTerm)
	}
	if name := b.hostname(); name != "" {
		e.set("HOSTNAME=" + name)
	}
	b.imageEnv(&e)
	if err := b.configEnv(&e); err != nil {
		return err
	}
	// Without $HOME, runc looks it up in the passwd that it sees, with no size limit, and sets "/"; crun does not set it.
	if home := b.in.User.Home; !e.has("HOME") {
		if !strings.HasPrefix(home, "/") || checkText("home", home) != nil {
			home = "/"
		}
		e.set("HOME=" + home)
	}
	if n := b.goMaxProcs(); n > 0 && !e.has("GOMAXPROCS") {
		e.set("GOMAXPROCS=" + strconv.FormatInt(n, 10))
	}
	b.spec.Process.Env = e.list
	return nil
}

// sharesPerCPU is the kubelet's weight of a CPU.
const sharesPerCPU = 1024

// goMaxProcs returns twice the CPUs that the container requests, or the node's minimum; 0 if a limit tells Go programs,
// since 1.25, or nothing is requested. As in CRI-O (openshift/enhancements 2047).
func (b *builder) goMaxProcs() int64 {
	least, r := int64(b.in.Defaults.MinGoMaxProcs), b.in.Config.GetLinux().GetResources()
	if least == 0 || r.GetCpuQuota() > 0 || r.GetCpuShares() <= minShares {
		return 0
	}
	return max(least, 2*((r.GetCpuShares()+sharesPerCPU-1)/sharesPerCPU))
}

// hostname returns the name in the pod's UTS namespace. A pod on the node's network has the node's.
func (b *builder) hostname() string {
	if b.in.Namespaces.UTS == Host {
		return cmp.Or(b.in.Host.Hostname, b.in.Pod.GetHostname())
	}
	return b.in.Pod.GetHostname()
}

// imageEnv skips malformed entries: the runtime would refuse the container, and the pod's author cannot fix the image.
func (b *builder) imageEnv(e *environ) {
	for i, kv := range b.in.Image.Env {
		if strings.Index(kv, "=") < 1 || checkText("", kv) != nil {
			b.warn("environment: entry %d of the image is not NAME=value and is left out", i)
			continue
		}
		e.set(kv)
	}
}

// configEnv sets the container's variables. Values are bytes since cri-api 0.37: newlines are legal, a NUL is an error
// that names the variable and never includes its value.
func (b *builder) configEnv(e *environ) error {
	for i, kv := range b.in.Config.GetEnvs() {
		name, value := kv.GetKey(), EnvValue(kv.GetValue())
		if name == "" || strings.Contains(name, "=") {
			return invalid("the name of variable %d is empty or contains '='", i)
		}
		if err := checkText("a variable's name", name); err != nil {
			return err
		}
		if err := checkText("the value of variable "+name, value); err != nil {
			return err
		}
		if len(value) != len(kv.GetValue()) {
			b.warn("environment: bytes in the value of %.100q are not UTF-8, which config.json needs: they are U+FFFD", name)
		}
		e.set(name + "=" + value)
	}
	return nil
}

// EnvValue returns the value of a variable as config.json can carry it: with U+FFFD for each byte that is not UTF-8.
// Such values come with the binary keys of a Secret, of which a program may use none (kubernetes issue 139132).
func EnvValue(value []byte) string {
	if utf8.Valid(value) {
		return string(value)
	}
	return string([]rune(string(value)))
}

// environ is a list of NAME=value with each name once, at the position where it was first set.
type environ struct {
	list []string
	at   map[string]int
}

func (e *environ) set(kv string) {
	name, _, _ := strings.Cut(kv, "=")
	if i, ok := e.at[name]; ok {
		e.list[i] = kv
		return
	}
	e.at[name] = len(e.list)
	e.list = append(e.list, kv)
}

func (e *environ) has(name string) bool {
	_, ok := e.at[name]
	return ok
}
