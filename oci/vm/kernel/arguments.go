package kernel

import (
	"net"
	"regexp"
	"strings"
)

// Network has the values that the arguments of a unikernel can name: its address of each family in CIDR notation, and
// its gateways. Those that it lacks are empty.
type Network struct {
	MAC, Hostname                        string
	Address, Gateway, Address6, Gateway6 string
}

// AddAddress adds an address in CIDR notation, if it is the first of its family.
func (n *Network) AddAddress(cidr string) {
	to := &n.Address
	if strings.Contains(cidr, ":") {
		to = &n.Address6
	}
	if *to == "" {
		*to = cidr
	}
}

// AddRoute adds the gateway of a route, if it is the first default route of its family.
func (n *Network) AddRoute(destination, gateway string) {
	switch {
	case destination == "0.0.0.0/0" && n.Gateway == "":
		n.Gateway = gateway
	case destination == "::/0" && n.Gateway6 == "":
		n.Gateway6 = gateway
	}
}

// argumentsLimit is the size of all arguments, in bytes: the limit of x86's boot protocol.
const argumentsLimit = 2047

// Expand replaces the placeholders of arguments by the pod's values, and checks the result.
func (n Network) Expand(args []string) ([]string, error) {
	address, prefix, mask := split(n.Address)
	address6, prefix6, _ := split(n.Address6)
	replacer := strings.NewReplacer(
		"{address}", address, "{prefix}", prefix, "{netmask}", mask, "{gateway}", n.Gateway,
		"{address6}", address6, "{prefix6}", prefix6, "{gateway6}", n.Gateway6,
		"{mac}", n.MAC, "{hostname}", n.Hostname,
	)
	expanded := make([]string, 0, len(args))
	size := 0
	for _, a := range args {
		a = replacer.Replace(a)
		if size += len(a) + 1; size > argumentsLimit {
			return nil, invalid("the arguments have more than %d bytes", argumentsLimit)
		}
		for _, c := range []byte(a) {
			if c < ' ' || c > '~' {
				return nil, invalid("argument %.80q: a kernel takes printable ASCII only", a)
			}
		}
		expanded = append(expanded, a)
	}
	return expanded, nil
}

// split returns an address, the length of its prefix, and its netmask.
func split(cidr string) (address, prefix, mask string) {
	ip, network, err := net.ParseCIDR(cidr)
	if err != nil {
		return "", "", ""
	}
	_, prefix, _ = strings.Cut(network.String(), "/")
	return ip.String(), prefix, net.IP(network.Mask).String()
}

// variable is an environment variable of the first process in the guest. The parameters of Linux and of User-Mode Linux
// itself, which name files and devices of the host, have small letters.
var variable = regexp.MustCompile(`^[A-Z][A-Z0-9_]*=[!-~]*$`)

// CheckVariables returns an error for an argument that User-Mode Linux could take for one of the kernel's.
func CheckVariables(args []string) error {
	for _, a := range args {
		if !variable.MatchString(a) {
			return invalid("argument %.80q: with User-Mode Linux, arguments are environment variables of the first process, "+
				"such as ADDRESS={address}", a)
		}
	}
	return nil
}
