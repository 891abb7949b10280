package network

import "encoding/json"

// Info describes the CNI configuration in force, in the JSON that containerd has in its verbose Status ("cniconfig").
type Info struct {
	PluginDirs       []string
	PluginConfDir    string
	PluginMaxConfNum int
	// Prefix is the start of the interface's name; its number follows.
	Prefix   string
	Networks []NetworkInfo
	// Error is the reason for an empty list.
	Error string `json:",omitempty"`
}

// NetworkInfo is one network that pods are attached to.
type NetworkInfo struct {
	Config ConfigInfo
	IFName string
}

// ConfigInfo is the configuration of a network. Source is its JSON, with the plugins of all files.
type ConfigInfo struct {
	Name, CNIVersion string
	Plugins          []PluginInfo
	Source           string
}

// PluginInfo is the configuration of a plugin: the fields that all plugins share, and the whole JSON.
type PluginInfo struct {
	Network json.RawMessage
	Source  string
}

// Info reads the configuration that the next pod would get.
func (c *CNI) Info() Info {
	info := Info{
		PluginDirs: c.cfg().BinDirs, PluginConfDir: c.cfg().ConfDir, PluginMaxConfNum: 1, Prefix: "eth",
		Networks: []NetworkInfo{},
	}
	list, _, _, err := loadConf(c.cfg().ConfDir)
	if err != nil {
		info.Error = err.Error()
		return info
	}
	conf := ConfigInfo{Name: list.Name, CNIVersion: list.CNIVersion, Source: string(list.Bytes)}
	for _, p := range list.Plugins {
		common, err := json.Marshal(p.Network)
		if err != nil {
			common = json.RawMessage("null")
		}
		conf.Plugins = append(conf.Plugins, PluginInfo{Network: common, Source: string(p.Bytes)})
	}
	info.Networks = append(info.Networks, NetworkInfo{Config: conf, IFName: ifName})
	return info
}
