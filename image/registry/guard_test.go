package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containerd/errdefs"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/types"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// TestOnNode: all addresses of the node, and those of links, in all notations.
func TestOnNode(t *testing.T) {
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	on := []string{"127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1", "169.254.169.254", "fe80::1",
		"fd00:ec2::254", "100.100.100.200"}
	for _, a := range own {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			t.Fatal(err)
		}
		on = append(on, prefix.Addr().String())
	}
	for _, a := range on {
		if !onNode(netip.MustParseAddr(a).Unmap()) {
			t.Errorf("onNode(%s) = false, want true", a)
		}
	}
	for _, a := range []string{"192.0.2.77", "2001:db8::77", "10.255.255.254"} {
		if onNode(netip.MustParseAddr(a)) {
			t.Errorf("onNode(%s) = true, want false", a)
		}
	}
}

// TestHosts: registries.conf names the hosts of its registries, their locations and mirrors.
func TestHosts(t *testing.T) {
	c := Config{RegistriesConf: filepath.Join(t.TempDir(), "registries.conf")}
	const conf = `[[registry]]
prefix = "a.test/x"
location = "b.test:5000/y"
[[registry.mirror]]
location = "c.test/z"
insecure = true
[[registry]]
location = "d.test"
blocked = true
`
	if err := os.WriteFile(c.RegistriesConf, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := c.hosts()
	if want := "c.test:443 c.test:80 b.test:5000 a.test:443"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("hosts = %q, %v, want %q", got, err, want)
	}
}

// server counts requests, and answers them with handler unless that is nil.
func server(t *testing.T, l net.Listener, handler http.HandlerFunc) *atomic.Int32 {
	t.Helper()
	var requests atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if handler == nil {
			fmt.Fprint(w, `{"token":"secret-of-the-node"}`)
			return
		}
		w.Header().Set("Connection", "close")
		handler(w, r)
	}))
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return &requests
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// elsewhere returns an address of another network namespace, and a function that listens there.
func elsewhere(t *testing.T) (string, func(port string) net.Listener) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	pid := os.Getpid()
	name, link := fmt.Sprintf("podd-guard-%d", pid), fmt.Sprintf("pg%d", pid)
	here, there := fmt.Sprintf("198.18.%d.%d", pid/64%256, pid%64*4+1), fmt.Sprintf("198.18.%d.%d", pid/64%256, pid%64*4+2)
	ip := func(args ...string) {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	ip("netns", "add", name)
	t.Cleanup(func() { ip("link", "del", link); ip("netns", "del", name) })
	ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
	ip("addr", "add", here+"/30", "dev", link)
	ip("link", "set", link, "up")
	ip("-n", name, "addr", "add", there+"/30", "dev", "eth0")
	ip("-n", name, "link", "set", "eth0", "up")
	return there, func(port string) net.Listener {
		var l net.Listener
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // it ends with the goroutine
			netns, err := os.Open("/run/netns/" + name)
			if err == nil {
				defer netns.Close()
				err = unix.Setns(int(netns.Fd()), unix.CLONE_NEWNET)
			}
			if err == nil {
				l, err = net.Listen("tcp4", net.JoinHostPort(there, port))
			}
			done <- err
		}()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		return l
	}
}

// resolve answers look-ups of names in this process with the addresses of answer.
func resolve(t *testing.T, answer func(name string) string) {
	t.Helper()
	dns, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		buf := make([]byte, 512)
		for {
			n, from, err := dns.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Header.Response, m.Additionals = true, nil
			if q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class},
					Body:   &dnsmessage.AResource{A: netip.MustParseAddr(answer(strings.TrimSuffix(q.Name.String(), "."))).As4()},
				}}
			}
			if packed, err := m.Pack(); err == nil {
				_, _ = dns.WriteTo(packed, from)
			}
		}
	}()
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("udp4", dns.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		_ = dns.Close()
	})
}

// askFor asks a registry without TLS for an image, as a pull does.
func askFor(t *testing.T, ref string, named ...string) error {
	t.Helper()
	parsed, err := reference.ParseNamed(ref)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{}
	sys := c.SystemContext()
	sys.DockerInsecureSkipTLSVerify = types.OptionalBoolTrue
	return c.Guard(t.Context(), sys, parsed, named, func(ctx context.Context) error {
		to, err := docker.NewReference(parsed)
		if err != nil {
			return err
		}
		source, err := to.NewImageSource(ctx, sys)
		if err != nil {
			return err
		}
		return source.Close()
	})
}

// challenge refuses requests with a token server.
func challenge(realm string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm=%q`, realm))
		w.WriteHeader(http.StatusUnauthorized)
	}
}

func portOf(l net.Listener) string { return strconv.Itoa(l.Addr().(*net.TCPAddr).Port) }

// TestGuardSeesTheConnection: a name that had another address before, or when it was looked up, does not lead to the
// node. That of the registry may, if it did at first.
func TestGuardSeesTheConnection(t *testing.T) {
	there, listenThere := elsewhere(t)
	inside := listen(t, "127.0.0.1:0")
	requests, port := server(t, inside, nil), portOf(inside)
	var registryAddress atomic.Value
	registryAddress.Store(there)
	resolve(t, func(name string) string {
		if name == "registry.test" {
			return registryAddress.Load().(string)
		}
		return "127.0.0.1"
	})
	var realm string
	asked := server(t, listenThere(port), func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(realm, "registry.test") {
			registryAddress.Store("127.0.0.1")
		}
		challenge(realm)(w, r)
	})
	for _, host := range []string{"inside.test:" + port, "registry.test:" + port, "INSIDE.test:" + port} {
		registryAddress.Store(there)
		realm = "http://" + host + "/x"
		err := askFor(t, "registry.test:"+port+"/app:v1")
		if !errdefs.IsPermissionDenied(err) || !strings.Contains(err.Error(), host) ||
			!strings.Contains(err.Error(), "registries.conf") {
			t.Errorf("error %v, want one that names %s and registries.conf", err, host)
		}
	}
	if asked.Load() == 0 || requests.Load() != 0 {
		t.Errorf("%d requests to the registry, %d to the node, want none there", asked.Load(), requests.Load())
	}
	registryAddress.Store(there)
	realm = "http://inside.test:" + port + "/x"
	if err := askFor(t, "registry.test:"+port+"/app:v1", "inside.test:"+port); requests.Load() != 1 {
		t.Errorf("%d requests to a named host, want 1: %v", requests.Load(), err)
	}
	registryAddress.Store("127.0.0.1")
	if err := askFor(t, "registry.test:"+port+"/app:v1"); requests.Load() < 3 {
		t.Errorf("%d requests to a registry on the node, want more than 2: %v", requests.Load(), err)
	}
}

// TestGuardFollowsToOtherHosts: a host elsewhere may be named, and gets no credentials.
func TestGuardFollowsToOtherHosts(t *testing.T) {
	there, listenThere := elsewhere(t)
	var authorization atomic.Value
	other := listenThere("0")
	redirected := server(t, other, func(w http.ResponseWriter, r *http.Request) {
		authorization.Store(r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusNotFound)
	})
	l := listen(t, "127.0.0.1:0")
	server(t, l, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/token":
			fmt.Fprint(w, `{"token":"secret"}`)
		case r.Header.Get("Authorization") == "":
			challenge("http://"+l.Addr().String()+"/token")(w, r)
		default:
			http.Redirect(w, r, "http://"+other.Addr().String()+"/manifest", http.StatusTemporaryRedirect)
		}
	})
	err := askFor(t, l.Addr().String()+"/app:v1")
	if redirected.Load() != 1 || errdefs.IsPermissionDenied(err) || authorization.Load() != "" {
		t.Errorf("%d requests at %s with authorization %q, want one without: %v", redirected.Load(), there,
			authorization.Load(), err)
	}
}

// TestGuardClosesTheConnection: net/http writes the request without looking at the context.
func TestGuardClosesTheConnection(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	g := &guard{end: func(error) {}}
	g.connected.Store(true)
	g.gotConn(httptrace.GotConnInfo{Conn: conn})
	if _, err := conn.Write([]byte("GET")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write = %v, want %v", err, net.ErrClosed)
	}
}

// TestGuardRemembersAddresses: a registry on the node whose name has got another address since is still the registry.
func TestGuardRemembersAddresses(t *testing.T) {
	g := &guard{own: "gone.invalid:5000", end: func(error) {}}
	for range 2 {
		if err := g.check(netip.MustParseAddrPort("127.0.0.1:5000")); err != nil {
			t.Errorf("check of the registry's address: %v", err)
		}
	}
	if err := g.check(netip.MustParseAddrPort("127.0.0.1:5001")); !errors.Is(err, errMisdirected) {
		t.Errorf("check of another port = %v, want %v", err, errMisdirected)
	}
}

// TestGuardOfSeveralAddresses: a registry with a certificate has an address elsewhere and one of this node.
func TestGuardOfSeveralAddresses(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler()) // for example.com
	t.Cleanup(s.Close)
	address := s.Listener.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	for own, allowed := range map[string]bool{
		"example.com:" + port: true, "example.com:443": false, "example.org:" + port: false,
	} {
		var ended error
		g := &guard{own: own, end: func(err error) { ended = err }}
		g.connected.Store(!allowed) // elsewhere
		transport := s.Client().Transport.(*http.Transport).Clone()
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: g.gotConn})
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://example.com:"+port, nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := transport.RoundTrip(r); err == nil {
			answer.Body.Close()
		}
		if !g.connected.Load() { // the next one would pass for the registry
			t.Error("the guard has not noticed the connection")
		}
		if (ended == nil) != allowed || ended != nil && !errors.Is(ended, errMisdirected) {
			t.Errorf("%s: ended with %v, want that it may be on the node: %v", own, ended, allowed)
		}
		transport.CloseIdleConnections()
	}
}
