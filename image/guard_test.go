package image_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/image"
)

// insideServer is a service of the node on all of its addresses. It counts requests and answers with a token, or with
// answer.
func insideServer(t *testing.T, answer http.HandlerFunc) (port string, requests *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	requests = &atomic.Int32{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if answer != nil {
			answer(w, r)
			return
		}
		fmt.Fprint(w, `{"token":"secret-of-the-node"}`)
	}))
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, requests
}

// nodeAddresses returns the addresses of the node that are not on loopback.
func nodeAddresses(t *testing.T) (out []string) {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if ip := netip.MustParsePrefix(a.String()).Addr(); !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			out = append(out, ip.String())
		}
	}
	return out
}

// misdirections are answers of a registry that name another host.
var misdirections = map[string]func(to string) func(http.ResponseWriter, *http.Request) bool{
	"token server": func(to string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/latest/meta-data"`, to))
			refuse(w, http.StatusUnauthorized, "UNAUTHORIZED")
			return true
		}
	},
	"manifest": func(to string) func(http.ResponseWriter, *http.Request) bool { return redirect("/manifests/", to) },
	"blob":     func(to string) func(http.ResponseWriter, *http.Request) bool { return redirect("/blobs/", to) },
}

func redirect(what, to string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, what) {
			return false
		}
		http.Redirect(w, r, to+r.URL.Path, http.StatusTemporaryRedirect)
		return true
	}
}

// checkMisdirected checks that an error names the host and what to do.
func checkMisdirected(t *testing.T, err error, host string) {
	t.Helper()
	if !errdefs.IsPermissionDenied(err) || !strings.Contains(err.Error(), host) ||
		!strings.Contains(err.Error(), "registries.conf") {
		t.Errorf("error %v, want one that names %s and registries.conf", err, host)
	}
}

// TestMisdirectedPull: a registry does not make the node ask itself or its links, by none of their names.
func TestMisdirectedPull(t *testing.T) {
	t.Parallel()
	port, requests := insideServer(t, nil)
	hosts := []string{"169.254.169.254", "[fe80::1]:" + port}
	for _, host := range append(nodeAddresses(t), "127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1",
		"localhost", "LOCALHOST") {
		hosts = append(hosts, net.JoinHostPort(host, port))
	}
	img := simple(t, "x")
	for how, misdirect := range misdirections {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			reg := newRegistry(t)
			reg.push(t, "app:v1", img)
			s := open(t, config(t, reg.host))
			for _, host := range hosts {
				reg.setGuard(misdirect("http://" + host))
				_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
				checkMisdirected(t, err, strings.Trim(host, "[]"))
			}
			if n := requests.Load(); n != 0 {
				t.Errorf("%d requests to the node, want none", n)
			}
		})
	}
}

// TestMisdirectedDaemon: nor does it make podd itself, which asks for images that are present, or a command.
func TestMisdirectedDaemon(t *testing.T) {
	t.Parallel()
	port, requests := insideServer(t, nil)
	host := "localhost:" + port
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	c := config(t, reg.host)
	ref := reg.host + "/a/b:v1"
	pushArtifact(t, c, ref)
	s := open(t, c)
	pull(t, s, reg.host+"/app:v1")
	reg.setGuard(misdirections["token server"]("http://" + host))
	_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
	checkMisdirected(t, err, host)
	_, err = c.PushArtifact(t.Context(), ref, artifactType, nil)
	checkMisdirected(t, err, host)
	for _, how := range []string{"token server", "blob"} {
		reg.setGuard(misdirections[how]("http://" + host))
		_, err = blobOf(t, c, ref, "one", 3000)
		checkMisdirected(t, err, host)
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests to the node, want none", n)
	}
}

// TestNamedHosts: hosts that registries.conf names may be anywhere, and so may the host of the reference.
func TestNamedHosts(t *testing.T) {
	t.Parallel()
	img := simple(t, "x")
	reg := newRegistry(t)
	reg.push(t, "app:v1", img)
	port, requests := insideServer(t, func(w http.ResponseWriter, r *http.Request) { reg.inner.ServeHTTP(w, r) })
	for _, host := range append(nodeAddresses(t), "127.0.0.1", "localhost") {
		host = net.JoinHostPort(host, port)
		if strings.HasPrefix(host, "[") { // no name of a registry
			continue
		}
		for _, table := range []string{
			fmt.Sprintf("[[registry]]\nlocation = %q\n", host),
			fmt.Sprintf("[[registry]]\nprefix = \"x.test/a\"\nlocation = \"%s/a\"\n", host),
			fmt.Sprintf("[[registry]]\nlocation = \"x.test\"\n[[registry.mirror]]\nlocation = \"%s/a\"\n", host),
		} {
			c := config(t, reg.host)
			writeFile(t, c.RegistriesConf, table)
			before := requests.Load()
			reg.setGuard(misdirections["blob"]("http://" + host))
			pull(t, open(t, c), reg.host+"/app:v1")
			if requests.Load() == before {
				t.Errorf("no request to %s, want that of a blob", host)
			}
		}
		reg.setGuard(nil)
		pull(t, open(t, config(t, host)), host+"/app:v1")
	}
}

// TestOperatorsProxy: the operator's proxy may be on the node, and looks names up itself. A registry cannot make it ask
// an address of a link. A host that a redirect names gets no credentials.
func TestOperatorsProxy(t *testing.T) {
	reg := newRegistry(t)
	img := simple(t, "x")
	reg.push(t, "app:v1", img)
	blobs := &atomic.Int32{}
	port, _ := insideServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch authorization := r.Header.Get("Authorization"); {
		case r.URL.Host == "tokens.test":
			fmt.Fprintf(w, `{"token":%q}`, bearer)
		case r.URL.Host == "blobs.test" && authorization == "":
			blobs.Add(1)
			reg.inner.ServeHTTP(w, r)
		case r.URL.Host == "registry.test" && authorization == "Bearer "+bearer:
			reg.server.Config.Handler.ServeHTTP(w, r)
		default:
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://tokens.test/token"`)
			refuse(w, http.StatusUnauthorized, "UNAUTHORIZED")
		}
	})
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:"+port)
	s := open(t, config(t, "registry.test"))
	reg.setGuard(misdirections["blob"]("http://169.254.169.254"))
	_, err := s.Pull(t.Context(), image.PullRequest{Ref: "registry.test/app:v1"})
	checkMisdirected(t, err, "169.254.169.254")
	reg.setGuard(misdirections["blob"]("http://blobs.test"))
	pull(t, s, "registry.test/app:v1")
	if blobs.Load() == 0 {
		t.Error("no request for a blob by the proxy")
	}
}
