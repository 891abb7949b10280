package settings

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// liveKeys are the keys, and tables of keys, that a reload can change. The others need a restart.
var liveKeys = []string{
	"log",
	"runtime.default_handler", "runtime.host_access_handler", "runtime.annotation_handlers", "runtime.handlers",
	"runtime.conmon", "runtime.criu", "runtime.exec_cgroups", "runtime.search_path",
	"runtime.seccomp_profile_root", "runtime.default_sysctls",
	"runtime.default_ulimits", "runtime.default_capabilities", "runtime.default_env", "runtime.pids_limit",
	"runtime.timezone", "runtime.read_only", "runtime.hooks_dirs", "runtime.device_ownership_from_security_context",
	"runtime.blockio_config_file", "runtime.min_injected_gomaxprocs", "runtime.exec_cpu_affinity",
	"runtime.create_timeout", "runtime.kill_timeout",
	"runtime.checkpoint_timeout", "runtime.checkpoint_keys",
	"runtime.restore_foreign_checkpoints",
	"network.conf_dir", "network.bin_dirs", "network.conf_template", "network.ip_preference", "network.add_timeout",
	"network.del_timeout", "network.skip_idle_plugins",
	"image.registries_conf", "image.policy", "image.policy_dir", "image.auth_file",
	"image.auth_dir", "image.decryption_keys_path", "image.pinned_images",
	"image.variant_annotations", "image.preload_dir", "image.pull_progress_timeout", "image.pull_min_rate",
	"image.additional_layer_store",
	"image.max_image_bytes", "image.max_writable_bytes", "image.pull_memory",
}

// live reports whether a reload can change the key.
func live(key string) bool {
	return slices.ContainsFunc(liveKeys, func(l string) bool { return key == l || strings.HasPrefix(key, l+".") })
}

// ChangedKeys returns the keys that differ, sorted.
func ChangedKeys(before, after map[string]any) []string {
	all := maps.Clone(before)
	maps.Copy(all, after)
	var changed []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !reflect.DeepEqual(before[key], after[key]) {
			changed = append(changed, key)
		}
	}
	return changed
}

// CheckLive returns an error that names the keys which only a restart can change.
func CheckLive(changed []string) error {
	fixed := slices.DeleteFunc(slices.Clone(changed), live)
	if len(fixed) == 0 {
		return nil
	}
	return fmt.Errorf("only a restart can change %s: restart podd (pods keep running) or set it back",
		strings.Join(fixed, ", "))
}

// SameHandler reports whether the handler of that name has the same runtime in both.
func SameHandler(a, b *Config, name string) bool {
	before, existed := a.Runtime.Handlers[name]
	after, exists := b.Runtime.Handlers[name]
	r, n := &a.Runtime, &b.Runtime
	return existed && exists && reflect.DeepEqual(before, after) && r.Conmon == n.Conmon && r.CRIU == n.CRIU &&
		slices.Equal(r.SearchPath, n.SearchPath) && r.CreateTimeout == n.CreateTimeout && r.ExecCgroups == n.ExecCgroups
}
