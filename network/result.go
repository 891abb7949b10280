package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types/create"
)

// maxResult bounds a result in a record, in bytes.
const maxResult = 256 << 10

// pluginResult is the part of a plugin's result that podd reads, in any version of CNI. libcni's own types are not used
// for it: they panic on a null in place of an object.
type pluginResult struct {
	CNIVersion string            `json:"cniVersion"`
	Interfaces []*resultIface    `json:"interfaces"`
	IPs        []*resultIP       `json:"ips"`
	IP4        *resultOldIP      `json:"ip4"` // CNI 0.2 and before
	IP6        *resultOldIP      `json:"ip6"`
	Routes     []json.RawMessage `json:"routes"`
}

type resultIface struct {
	Name    string `json:"name"`
	Sandbox string `json:"sandbox"`
}

type resultIP struct {
	Address   string `json:"address"`
	Interface *int   `json:"interface"`
}

type resultOldIP struct {
	IP string `json:"ip"`
}

// decodeResult parses a result and refuses null elements in it.
func decodeResult(data []byte) (pluginResult, error) {
	var a pluginResult
	if len(data) > maxResult {
		return a, fmt.Errorf("result of %d bytes, more than %d", len(data), maxResult)
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("not a CNI result: %w", err)
	}
	null := func(r json.RawMessage) bool { return string(r) == "null" }
	if slices.Contains(a.Interfaces, nil) || slices.Contains(a.IPs, nil) || slices.ContainsFunc(a.Routes, null) {
		return a, errors.New("result contains a null interface, address or route")
	}
	return a, nil
}

// normalize returns a plugin's result in the form in which libcni passes it to the next plugin: with a version, that of
// the network. DEL's prevResult needs it.
func normalize(data []byte, cniVersion string) (json.RawMessage, error) {
	a, err := decodeResult(data)
	if err != nil {
		return nil, err
	}
	if a.CNIVersion == "" { // allowed, and common with old plugins
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(data, &fields); err != nil {
			return nil, err
		}
		if fields == nil { // the text "null"
			fields = map[string]json.RawMessage{}
		}
		quoted, err := json.Marshal(cniVersion)
		if err != nil {
			return nil, err
		}
		fields["cniVersion"] = quoted
		if data, err = json.Marshal(fields); err != nil {
			return nil, err
		}
	}
	result, err := create.CreateFromBytes(data)
	if err != nil {
		return nil, err
	}
	if cniVersion == "" {
		cniVersion = "0.1.0"
	}
	if result, err = result.GetAsVersion(cniVersion); err != nil {
		return nil, err
	}
	return json.Marshal(result)
}

// parseResult returns the pod's addresses from the last plugin's result, in the order of preference. A result without
// an address is an error: a pod needs one.
func parseResult(data []byte, preference string) (Result, error) {
	a, err := decodeResult(data)
	if err != nil {
		return Result{}, err
	}
	texts, err := a.addresses()
	if err != nil {
		return Result{}, err
	}
	r := Result{Interface: ifName}
	for _, text := range texts {
		ip, err := parseIP(text)
		if err != nil {
			return Result{}, err
		}
		if !slices.Contains(r.IPs, ip) {
			r.IPs = append(r.IPs, ip)
		}
	}
	if len(r.IPs) == 0 {
		return Result{}, errors.New("CNI result has no address for the pod")
	}
	if preference != "cni" {
		slices.SortStableFunc(r.IPs, func(x, y netip.Addr) int { return rank(x, preference) - rank(y, preference) })
	}
	return r, nil
}

func rank(ip netip.Addr, preference string) int {
	if ip.Is4() == (preference == "ipv4") {
		return 0
	}
	return 1
}

// addresses returns the addresses of the pod's main interface, without those of other interfaces, which meta plugins
// add, and of the node's end of the link. Some plugins do not name the sandbox of any interface (Terway until 2022).
func (a pluginResult) addresses() ([]string, error) {
	var texts []string
	for _, old := range []*resultOldIP{a.IP4, a.IP6} {
		if old != nil && a.IPs == nil {
			texts = append(texts, old.IP)
		}
	}
	named := slices.ContainsFunc(a.Interfaces, func(i *resultIface) bool { return i.Sandbox != "" })
	for _, ip := range a.IPs {
		if ip.Interface == nil {
			texts = append(texts, ip.Address)
			continue
		}
		i := *ip.Interface
		if i < 0 || i >= len(a.Interfaces) {
			return nil, fmt.Errorf("address %.80q belongs to interface %d of %d", ip.Address, i, len(a.Interfaces))
		}
		if a.Interfaces[i].Name == ifName && (a.Interfaces[i].Sandbox != "" || !named) {
			texts = append(texts, ip.Address)
		}
	}
	return texts, nil
}

// parseIP parses an address with its prefix length, as CNI writes them.
func parseIP(text string) (netip.Addr, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("address %.80q is not an IP address with a prefix length", text)
	}
	ip := prefix.Addr().Unmap()
	if ip.IsUnspecified() || ip.IsLoopback() || ip.IsMulticast() {
		return netip.Addr{}, fmt.Errorf("address %s cannot be a pod's address", ip)
	}
	return ip, nil
}
