package convert

import "net/netip"

// Addresses returns addresses as text, in their order.
func Addresses(ips []netip.Addr) (list []string) {
	for _, ip := range ips {
		list = append(list, ip.String())
	}
	return list
}
