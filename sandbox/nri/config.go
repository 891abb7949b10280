package nri

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/containerd/nri/pkg/api"
)

// Values of on_failure; "" is the plugin's own choice, see NRI's FailurePolicy.
const (
	refuseOnFailure   = "refuse"
	continueOnFailure = "continue"
)

// Config is the [nri] section of podd.toml.
type Config struct {
	Enable              bool                   `toml:"enable" comment:"Serve plugins of the Node Resource Interface (NRI): they see all pods and containers, and can change containers that are created."`
	Socket              string                 `toml:"socket" comment:"Unix socket for plugins that connect by themselves. Only root can connect. Empty: none."`
	PluginDir           string                 `toml:"plugin_dir" comment:"Directory of plugins that podd starts: files named NN-NAME, which must belong to root. Empty: none."`
	ConfigDir           string                 `toml:"config_dir" comment:"Directory of the configurations of the plugins in plugin_dir: NN-NAME.conf or NAME.conf."`
	RegistrationTimeout time.Duration          `toml:"registration_timeout" comment:"Limit for a plugin to register after it has connected, and to take in each part of the list of what runs."`
	RequestTimeout      time.Duration          `toml:"request_timeout" comment:"Limit for a plugin to answer one request."`
	Plugins             map[string]PluginTable `toml:"plugins" comment:"Plugins by name, without the index."`
	Validator           Validator              `toml:"validator" comment:"NRI's default validator, which refuses containers that were adjusted in ways that are not allowed here."`
}

// PluginTable is one table [nri.plugins.NAME].
type PluginTable struct {
	OnFailure string `toml:"on_failure" comment:"What happens if the plugin does not answer a request in time, or breaks the protocol. refuse: the request fails, and a plugin that was too slow stays connected. continue: the request proceeds without the plugin, which is disconnected. Empty: the plugin's own choice, by default continue."`
}

// Validator is the [nri.validator] section. The keys are those of containerd's default validator.
type Validator struct {
	Enable                                bool     `toml:"enable" comment:"Use the validator."`
	RejectOCIHookAdjustment               bool     `toml:"reject_oci_hook_adjustment" comment:"Refuse containers with hooks of plugins."`
	RejectRuntimeDefaultSeccompAdjustment bool     `toml:"reject_runtime_default_seccomp_adjustment" comment:"Refuse containers whose seccomp profile RuntimeDefault a plugin replaced."`
	RejectUnconfinedSeccompAdjustment     bool     `toml:"reject_unconfined_seccomp_adjustment" comment:"Refuse unconfined containers to which a plugin gave a seccomp profile."`
	RejectCustomSeccompAdjustment         bool     `toml:"reject_custom_seccomp_adjustment" comment:"Refuse containers whose seccomp profile of type Localhost a plugin replaced."`
	RejectNamespaceAdjustment             bool     `toml:"reject_namespace_adjustment" comment:"Refuse containers whose namespaces a plugin changed."`
	RejectSysctlAdjustment                bool     `toml:"reject_sysctl_adjustment" comment:"Refuse containers with sysctls of plugins."`
	RequiredPlugins                       []string `toml:"required_plugins" comment:"Plugins without which no container is created, including the containers of these plugins: see tolerate_missing_plugins_annotation."`
	TolerateMissingAnnotation             string   `toml:"tolerate_missing_plugins_annotation" comment:"Annotation by which a pod does without required plugins. Empty: none."`
}

// DefaultConfig returns the paths that containerd and CRI-O use, too, and the timeouts of the library.
func DefaultConfig() Config {
	return Config{
		Enable: true, Socket: "/var/run/nri/nri.sock", PluginDir: "/opt/nri/plugins", ConfigDir: "/etc/nri/conf.d",
		RegistrationTimeout: 5 * time.Second, RequestTimeout: 2 * time.Second,
	}
}

// maxTimeout bounds both timeouts: longer ones than the kubelet's for a request have no use.
const maxTimeout = 2 * time.Minute

// Validate reports each wrong key. It opens no file and no socket.
func (c Config) Validate(problem func(key string, err error)) {
	for _, p := range []struct{ key, path string }{
		{"socket", c.Socket}, {"plugin_dir", c.PluginDir}, {"config_dir", c.ConfigDir},
	} {
		if p.path != "" && (!filepath.IsAbs(p.path) || p.path != filepath.Clean(p.path) || p.path == "/") {
			problem(p.key, fmt.Errorf("%q is not a clean absolute path", p.path))
		}
	}
	if limit := 107; len(c.Socket) > limit { // sun_path
		problem("socket", fmt.Errorf("%q is longer than the %d bytes of a unix socket's path", c.Socket, limit))
	}
	for _, d := range []struct {
		key string
		d   time.Duration
	}{{"registration_timeout", c.RegistrationTimeout}, {"request_timeout", c.RequestTimeout}} {
		if d.d <= 0 || d.d > maxTimeout {
			problem(d.key, fmt.Errorf("%v is not between 0 and %v", d.d, maxTimeout))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Plugins)) {
		c.Plugins[name].validate("plugins."+strconv.Quote(name), name, problem)
	}
}

func (t PluginTable) validate(key, name string, problem func(key string, err error)) {
	if err := api.CheckPluginName(name); err != nil {
		problem(key, err)
	}
	switch t.OnFailure {
	case "", refuseOnFailure, continueOnFailure:
	default:
		problem(key+".on_failure",
			fmt.Errorf("%q is neither %s nor %s", t.OnFailure, refuseOnFailure, continueOnFailure))
	}
}
