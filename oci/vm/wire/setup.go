package wire

// Pod is the setup of the guest before the first container.
type Pod struct {
	Hostname string `json:"hostname"`
	// Sysctls by name, with dots or slashes as in sysctl.d(5).
	Sysctls    map[string]string `json:"sysctls,omitempty"`
	Interfaces []Interface       `json:"interfaces,omitempty"`
	Routes     []Route           `json:"routes,omitempty"`
}

// Interface is a network interface of the guest, found by its MAC address.
type Interface struct {
	Name string `json:"name"`
	MAC  string `json:"mac"`
	MTU  int    `json:"mtu"`
	// Addresses are in CIDR notation.
	Addresses []string `json:"addresses,omitempty"`
}

// Route is a route of the main table.
type Route struct {
	// Interface is the name of the output interface.
	Interface string `json:"interface"`
	// Destination is in CIDR notation. Gateway and Source may be empty.
	Destination string `json:"destination"`
	Gateway     string `json:"gateway,omitempty"`
	Source      string `json:"source,omitempty"`
	// Scope, Flags and Metric are the kernel's numbers (rtnetlink(7)).
	Scope  int `json:"scope,omitempty"`
	Flags  int `json:"flags,omitempty"`
	Metric int `json:"metric,omitempty"`
}
