package registry

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"
	"golang.org/x/sys/unix"
)

// guard ends the requests of a pull when one would go to the node or its links: a registry names any host as its token
// server or in a redirect, and gets part of that host's answer. Hosts that the operator's files name may be there, and
// the registry that is pulled from if the first connection leads there: its name can get another address.
type guard struct {
	own       string // HOST:PORT
	connected atomic.Bool
	// hosts are those (HOST:PORT) that requests are for, and true for those that may be on the node; good are addresses
	// of the latter.
	hosts, good sync.Map
	end         context.CancelCauseFunc
}

// errMisdirected is the cause of a context that a guard has ended.
var errMisdirected = fmt.Errorf("misdirected: %w", errdefs.ErrPermissionDenied)

// Guard runs f, in which the library asks for ref, with the context and with sys, which it changes. Named are the hosts
// of registries.conf.
func (c Config) Guard(
	ctx context.Context, sys *types.SystemContext, ref reference.Named, named []string, f func(context.Context) error,
) error {
	sources, err := c.Sources(ref)
	if err != nil {
		return err
	}
	from := sources[len(sources)-1]
	to, err := docker.NewReference(from.Reference)
	if err != nil {
		return err
	}
	signatures, err := docker.SignatureStorageBaseURL(sys, to, false)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	g := &guard{own: withPort(reference.Domain(from.Reference), "443"), end: end}
	for _, host := range append(named, hostPort(signatures)) {
		g.hosts.Store(host, true)
	}
	sys.DockerProxy = g.proxy
	err = f(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: g.gotConn}))
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errMisdirected) {
		return cause
	}
	return err
}

// proxy is called before each request and returns the operator's proxy, if any. That may be anywhere; it looks names up
// itself.
func (g *guard) proxy(u *url.URL) (*url.URL, error) {
	host := hostPort(u)
	g.hosts.LoadOrStore(host, false)
	if to, err := netip.ParseAddrPort(host); err == nil {
		if err := g.check(to); err != nil {
			return nil, err
		}
	}
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	if proxy != nil {
		g.hosts.Store(hostPort(proxy), true)
	}
	return proxy, err
}

// withPort returns HOST:PORT of a host that may have a port.
func withPort(host, port string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(host, port)
}

func hostPort(u *url.URL) string {
	ports := map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), ports[u.Scheme]))
}

// gotConn is called after the connection, before the request is written.
func (g *guard) gotConn(info httptrace.GotConnInfo) {
	to, err := netip.ParseAddrPort(info.Conn.RemoteAddr().String())
	if err == nil && g.isOwn(info.Conn, to.Port()) {
		g.connected.Store(true)
		return
	}
	if err == nil {
		err = g.check(to)
	}
	if err != nil {
		g.end(err)
		_ = info.Conn.Close()
	}
}

// isOwn reports whether the other side has proved to be the registry. It may have several addresses, also of this node.
func (g *guard) isOwn(conn net.Conn, port uint16) bool {
	c, ok := conn.(*tls.Conn)
	if !ok {
		return false
	}
	s := c.ConnectionState()
	return len(s.VerifiedChains) > 0 && net.JoinHostPort(s.ServerName, strconv.Itoa(int(port))) == g.own
}

// check returns an error, with which it ends all requests, if none may be sent to an address.
func (g *guard) check(to netip.AddrPort) error {
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	first := !g.connected.Swap(true)
	if !onNode(to.Addr()) {
		return nil
	}
	if first { // the registry is on the node
		g.hosts.Store(g.own, true)
	}
	_, known := g.good.Load(to) // an address may have left the DNS since
	if first || known || g.find(to, true) != "" {
		g.good.Store(to, true)
		return nil
	}
	host := cmp.Or(g.find(to, false), to.String())
	err := fmt.Errorf("a registry may not direct podd to %s, which is this node or on its link (%s): to allow that, name "+
		"%[1]s in registries.conf, as the location of a registry: %[3]w", host, to.Addr(), errMisdirected)
	g.end(err)
	return err
}

// findTimeout bounds the look-ups of find: DNS may be dead.
const findTimeout = 5 * time.Second

// find returns a host that has an address.
func (g *guard) find(to netip.AddrPort, allowed bool) (found string) {
	ctx, cancel := context.WithTimeout(context.Background(), findTimeout)
	defer cancel()
	g.hosts.Range(func(host, is any) bool {
		name, port, err := net.SplitHostPort(host.(string))
		if err != nil || is != allowed || port != strconv.Itoa(int(to.Port())) {
			return true
		}
		addresses, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		if slices.ContainsFunc(addresses, func(a netip.Addr) bool { return a.Unmap() == to.Addr() }) {
			found = host.(string)
		}
		return found == ""
	})
	return found
}

// metadata are the addresses at which AWS, Alibaba and Oracle tell a node its secrets, except 169.254.169.254.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("192.0.0.192"),
}

// onNode reports whether an address is the node's, of a link, or its cloud's for metadata.
func onNode(ip netip.Addr) bool {
	if ip.IsLoopback() || ip.IsUnspecified() || ip.IsLinkLocalUnicast() || slices.Contains(metadata, ip) {
		return true
	}
	// A pull's process cannot list the node's addresses. To each the kernel sends from the same; this sends nothing.
	probe, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, 9)))
	if err != nil {
		return !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EHOSTUNREACH) &&
			!errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.EAFNOSUPPORT)
	}
	defer probe.Close()
	return probe.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap() == ip
}

// hosts returns the hosts (HOST:PORT) that registries.conf names. Without a port it is that of HTTPS, and of HTTP if
// that may be used.
func (c Config) hosts() (out []string, err error) {
	registries, err := sysregistriesv2.GetRegistries(c.SystemContext())
	if err != nil {
		return nil, fmt.Errorf("read registries.conf: %w", err)
	}
	for _, r := range registries {
		for _, e := range append(r.Mirrors, r.Endpoint, sysregistriesv2.Endpoint{Location: r.Prefix}) {
			host, _, _ := strings.Cut(e.Location, "/")
			if r.Blocked || host == "" {
				continue
			}
			out = append(out, withPort(host, "443"))
			if plain := withPort(host, "80"); e.Insecure && plain != host {
				out = append(out, plain)
			}
		}
	}
	return out, nil
}
