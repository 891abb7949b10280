package network

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Config has the operator's keys of CNI: directories and time limits. Reconfigure can replace them.
type Config struct {
	// NetnsDir is the directory in which the engine pins the pods' network namespaces; CNI gets their paths.
	NetnsDir string `toml:"netns_dir" comment:"Directory of the pods' network namespaces, as CNI plugins get it in CNI_NETNS. Tools look in /var/run/netns, with exactly this spelling (ip netns, Multus, Istio). podd's files in it are podd-<pod id>; others are not touched. Default if run is not /run/podd: netns in run."`
	// ConfDir is the CNI configuration directory. It need not exist yet.
	ConfDir string `toml:"conf_dir" comment:"Directory of CNI configurations, watched for changes. The first valid .conf, .conflist or .json file by name is used."`
	// BinDirs are searched for plugins, in order. PATH is not searched.
	BinDirs []string `toml:"bin_dirs" comment:"Directories of CNI plugins, searched in order."`
	// ConfTemplate is a template of a configuration with {{.PodCIDR}}, {{.PodCIDRRanges}} and {{.Routes}}, see package
	// template.
	ConfTemplate string `toml:"conf_template" comment:"Template of a CNI configuration, in the language of Go's text/template with fields, range and if, but without functions. podd fills in the pod CIDR that the kubelet sends ({{.PodCIDR}}, {{.PodCIDRRanges}}, {{.Routes}}) and writes 10-podd.conflist to conf_dir. Empty: CNI is configured by other means."`
	// IPPreference orders the addresses of a pod: cni (as returned by the plugin), ipv4 or ipv6 first.
	IPPreference string `toml:"ip_preference" comment:"Primary address of a pod: cni (the first that the plugin returns), ipv4 or ipv6."`
	// PluginEnv names variables of the daemon's environment that plugins get in addition to PATH, the proxies and CNI's
	// own. New reads it; Reconfigure does not.
	PluginEnv []string `toml:"plugin_env" comment:"Names of further environment variables of the daemon that are passed to plugins."`
	// SkipIdlePlugins skips plugins of the CNI project that have nothing to do for a pod.
	SkipIdlePlugins bool `toml:"skip_idle_plugins" comment:"Do not start the plugins portmap (for a pod without host ports) and bandwidth (without limits), which would only pass on the result of the plugin before them. Applies to the programs of github.com/containernetworking/plugins, by their build information."`
	// AddTimeout and DelTimeout bound one attachment and one detachment.
	AddTimeout time.Duration `toml:"add_timeout" comment:"Limit for attaching a pod to the network; then the plugin is killed."`
	DelTimeout time.Duration `toml:"del_timeout" comment:"Limit for one attempt to detach a pod, 2 minutes at most; then the plugin is killed."`
}

// maxDelTimeout is the longest CNI DEL: the engine gives a teardown as long.
const maxDelTimeout = 2 * time.Minute

// DefaultConfig returns the default values.
func DefaultConfig() Config {
	return Config{
		NetnsDir:        "/var/run/netns",
		ConfDir:         "/etc/cni/net.d",
		BinDirs:         []string{"/opt/cni/bin", "/usr/lib/cni"},
		IPPreference:    "cni",
		PluginEnv:       []string{},
		SkipIdlePlugins: true,
		AddTimeout:      2 * time.Minute,
		DelTimeout:      maxDelTimeout,
	}
}

// Validate reports each wrong key. It opens no file.
func (c Config) Validate(problem func(key string, err error)) {
	if !filepath.IsAbs(c.NetnsDir) || filepath.Clean(c.NetnsDir) != c.NetnsDir || c.NetnsDir == "/" ||
		strings.ContainsRune(c.NetnsDir, 0) {
		problem("netns_dir", fmt.Errorf("%q is not a clean absolute path", c.NetnsDir))
	}
	if !filepath.IsAbs(c.ConfDir) {
		problem("conf_dir", fmt.Errorf("%q is not an absolute path", c.ConfDir))
	}
	if c.ConfTemplate != "" && !filepath.IsAbs(c.ConfTemplate) {
		problem("conf_template", fmt.Errorf("%q is not an absolute path", c.ConfTemplate))
	}
	if len(c.BinDirs) == 0 {
		problem("bin_dirs", errors.New("is empty, want at least one directory"))
	}
	for _, dir := range c.BinDirs {
		// They become one colon-separated variable, CNI_PATH.
		if !filepath.IsAbs(dir) || strings.ContainsAny(dir, ":\x00") {
			problem("bin_dirs", fmt.Errorf("%q is not an absolute path without colons", dir))
		}
	}
	if !slices.Contains([]string{"cni", "ipv4", "ipv6"}, c.IPPreference) {
		problem("ip_preference", fmt.Errorf("%q is not cni, ipv4 or ipv6", c.IPPreference))
	}
	for _, d := range []struct {
		key string
		d   time.Duration
	}{
		{"add_timeout", c.AddTimeout}, {"del_timeout", c.DelTimeout},
	} {
		if d.d <= 0 {
			problem(d.key, fmt.Errorf("%v is not a positive duration", d.d))
		}
	}
	if c.DelTimeout > maxDelTimeout {
		problem("del_timeout", fmt.Errorf("%v is more than %v", c.DelTimeout, maxDelTimeout))
	}
}
