package registry

import (
	"fmt"
	"net"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"
)

// TrustLoopback allows a registry on this node to be served without TLS, as every other runtime does and as Kubernetes'
// own tests expect: only root can read or alter loopback traffic. An entry in registries.conf takes precedence.
func TrustLoopback(sys *types.SystemContext, ref reference.Named) error {
	if !onLoopback(reference.Domain(ref)) {
		return nil
	}
	entry, err := sysregistriesv2.FindRegistry(sys, ref.Name())
	if err != nil {
		return fmt.Errorf("look %s up in registries.conf: %w", ref.Name(), err)
	}
	if entry == nil {
		sys.DockerInsecureSkipTLSVerify = types.OptionalBoolTrue
	}
	return nil
}

// onLoopback reports whether domain is localhost or a loopback address, with or without a port.
func onLoopback(domain string) bool {
	host := domain
	if h, _, err := net.SplitHostPort(domain); err == nil {
		host = h
	}
	if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
