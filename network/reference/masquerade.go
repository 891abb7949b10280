package reference

import (
	"encoding/json"
	"slices"

	"github.com/containernetworking/cni/libcni"
)

// Masquerades reports whether a DEL of list needs the pod's interface. The plugins bridge and ptp make masquerade rules
// for the pod's addresses, and at DEL they remove the rules of the addresses that they find on its interface.
func Masquerades(list *libcni.NetworkConfigList) bool {
	return slices.ContainsFunc(list.Plugins, func(p *libcni.PluginConfig) bool {
		return (p.Network.Type == "bridge" || p.Network.Type == "ptp") && IPMasq(p)
	})
}

// IPMasq reports whether the plugin writes masquerade rules for each pod.
func IPMasq(p *libcni.PluginConfig) bool {
	var conf struct {
		IPMasq bool `json:"ipMasq"`
	}
	return json.Unmarshal(p.Bytes, &conf) == nil && conf.IPMasq
}
