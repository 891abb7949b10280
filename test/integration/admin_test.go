package integration

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"k8s.io/client-go/tools/remotecommand"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
)

// admin returns the answer of the admin API to a GET, which must succeed.
func (k *kubelet) admin(path string) string {
	k.Helper()
	status, body := k.askAdmin(http.MethodGet, path)
	if status != http.StatusOK {
		k.Fatalf("GET %s = %d %s", path, status, body)
	}
	return body
}

// askAdmin makes a request to the admin API.
func (k *kubelet) askAdmin(method, path string) (status int, body string) {
	k.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(
		ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", k.Path("run", "admin.sock"))
	}}}
	req, err := http.NewRequestWithContext(k.ctx(), method, "http://podd"+path, nil)
	k.ok("make a request", err)
	resp, err := client.Do(req)
	k.ok(method+" "+path, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	k.ok("read the answer to "+path, err)
	return resp.StatusCode, string(text)
}

// TestAdmin asks a daemon with a pod, an exec session and a file that a container has written what it does.
func TestAdmin(t *testing.T) {
	t.Parallel()
	k := startWith(t, daemon.Options{Set: []string{`log.level = "info"`, `runtime.exec_cgroups = true`}})
	pod, container := k.sleeper()
	t.Run("socket", func(t *testing.T) {
		if info, err := os.Stat(k.Path("run", "admin.sock")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("admin socket: %v, %v, want mode 0600", info, err)
		}
	})
	t.Run("sessions", func(t *testing.T) { adminSessions(k.withT(t), pod, container) })
	t.Run("commands", func(t *testing.T) { adminCommands(k.withT(t), container) })
	t.Run("disk", func(t *testing.T) { adminDisk(k.withT(t), container) })
	t.Run("log level", func(t *testing.T) { adminLogLevel(k.withT(t)) })
	t.Run("profiles", func(t *testing.T) {
		k := k.withT(t)
		if heap := k.admin("/v1/pprof/heap"); !strings.HasPrefix(heap, "\x1f\x8b") {
			k.Errorf("heap profile = %.20q, want gzip", heap)
		}
		if stacks := k.admin("/v1/pprof/goroutine?debug=2"); !strings.Contains(stacks, "grpc") {
			k.Errorf("goroutines = %.200q, want those of the gRPC server", stacks)
		}
	})
}

func adminSessions(k *kubelet, pod, container string) {
	const secret = "planted-secret-word"
	if s := k.admin("/v1/sessions"); s != "{\"items\":[]}\n" {
		k.Errorf("sessions = %s, want none", s)
	}
	in, write := io.Pipe()
	at, done := k.execURL(container, false, "sh", "-c", "cat # "+secret), make(chan error, 1)
	go func() {
		done <- k.streamTo(0, at, remotecommand.StreamOptions{Stdin: in, Stdout: io.Discard, Stderr: io.Discard})
	}()
	k.eventually("the session is listed, and podd status prints it", func() bool {
		s := k.admin("/v1/sessions")
		if strings.Contains(s, secret) {
			k.Fatalf("sessions have the command line: %s", s)
		}
		out, _, _ := k.podd("status")
		return strings.Contains(s, `"kind":"exec","pod":"`+pod+`","container":"`+container+`"`) &&
			strings.Contains(out, "Streaming sessions: 1")
	})
	write.Close()
	k.ok("exec", <-done)
	k.eventually("the session is gone", func() bool { return k.admin("/v1/sessions") == "{\"items\":[]}\n" })
}

// adminCommands: a command's cgroup names the CRI call that has started it, and the log and the history have that call.
func adminCommands(k *kubelet, container string) {
	group := regexp.MustCompile(`/podd-exec-[A-Z2-7]+-([0-9a-f]{8})-[0-9]+-` + container + `\n`)
	const show = "cat /proc/self/cgroup"
	var stdout, terminal strings.Builder
	k.ok("exec", k.streamTo(0, k.execURL(container, false, "sh", "-c", show),
		remotecommand.StreamOptions{Stdout: &stdout}))
	k.ok("exec", k.streamTo(0, k.execURL(container, true, "sh", "-c", show),
		remotecommand.StreamOptions{Stdout: &terminal, Tty: true}))
	for name, c := range map[string]struct{ output, verb string }{
		"probe": {k.exec(container, show), ""}, "session": {stdout.String(), "Exec"},
		"terminal": {strings.ReplaceAll(terminal.String(), "\r", ""), "Exec"},
	} {
		found := group.FindStringSubmatch(c.output)
		if found == nil {
			k.Errorf("%s: no cgroup of a call in %s", name, c.output)
			continue
		}
		if c.verb == "" { // probes are neither in the history nor, at this level, in the log
			continue
		}
		k.eventually(name+": the history has the call", func() bool {
			out, _, _ := k.podd("history", container[:12])
			return regexp.MustCompile(c.verb + " +" + found[1]).MatchString(out)
		})
		log, err := os.ReadFile(k.LogFile())
		if k.ok("read the log", err); !strings.Contains(string(log), "request="+found[1]) {
			k.Errorf("%s: the log lacks request %s", name, found[1])
		}
	}
}

func adminDisk(k *kubelet, container string) {
	k.exec(container, "dd if=/dev/zero of=/big bs=1048576 count=3")
	var disk struct {
		Layers uint64
		Images struct {
			Items []struct {
				Names         []string
				Bytes, Unique uint64
				UsedBy        int `json:"used_by"`
			}
		}
		Containers struct {
			Items []struct {
				ID, Name string
				Bytes    uint64
			}
		}
	}
	k.eventually("the container's file is measured", func() bool {
		k.poddJSON(&disk, 0, "image", "df")
		return len(disk.Containers.Items) == 1 && disk.Containers.Items[0].Bytes >= 3<<20
	})
	if c := disk.Containers.Items[0]; c.ID != container || strings.Count(c.Name, "/") != 2 {
		k.Errorf("container = %+v, want %s and namespace/pod/container", c, container)
	}
	used := 0
	for _, i := range disk.Images.Items {
		used += i.UsedBy
		if len(i.Names) == 0 || i.Bytes == 0 || i.Unique > i.Bytes || i.Bytes > disk.Layers {
			k.Errorf("image %+v, want names, and Unique <= Bytes <= %d", i, disk.Layers)
		}
	}
	if used != 1 {
		k.Errorf("images are used by %d containers, want 1", used)
	}
	if text, _, code := k.podd("image", "df"); code != 0 || !strings.Contains(text, container[:13]) {
		k.Errorf("image df: exit status %d, want 0 and the container:\n%s", code, text)
	}
}

// adminLogLevel: at level info reads are not logged, at level debug they are.
func adminLogLevel(k *kubelet) {
	level := func(want string, args ...string) {
		k.Helper()
		out, errs, code := k.podd(append([]string{"log-level"}, args...)...)
		if code != 0 || strings.TrimSpace(out) != want {
			k.Fatalf("log-level %v: exit status %d, %q, want %s\n%s", args, code, out, want, errs)
		}
	}
	lists := func() int {
		k.pods(nil)
		log, err := os.ReadFile(k.LogFile())
		k.ok("read the log", err)
		return bytes.Count(log, []byte("method=ListPodSandbox"))
	}
	level("info")
	before := lists()
	level("debug", "debug")
	if after := lists(); after <= before {
		k.Errorf("%d lines about ListPodSandbox, want more than %d", after, before)
	}
	level("info", "info")
	if _, errs, code := k.podd("log-level", "loud"); code != 1 || !strings.Contains(errs, "not one of trace, debug") {
		k.Errorf("log-level loud: exit status %d, %q, want 1 and the levels", code, errs)
	}
	level("info")
}

// TestHistory: failed and successful operations of a pod that is gone are kept when podd is killed, and read without a
// daemon and by the next one.
func TestHistory(t *testing.T) {
	t.Parallel()
	k := start(t)
	pod, cfg := k.pod()
	_, err := k.tryCreate(pod, k.containerConfig([]string{"true"}, func(c *cri.ContainerConfig) {
		c.Mounts = []*cri.Mount{{HostPath: "/proc/1/no-such-file", ContainerPath: "/x"}}
	}), cfg)
	k.refused("CreateContainer", err, "no-such-file", codes.Unknown, codes.Internal, codes.InvalidArgument, codes.NotFound,
		codes.FailedPrecondition)
	k.stopPod(pod)
	k.removePod(pod)
	verbs := func(want ...string) {
		k.Helper()
		var h struct {
			Items []struct{ Verb, Outcome, Error string }
		}
		k.poddJSON(&h, 0, "history", pod[:12])
		var got []string
		for _, o := range h.Items {
			got = append(got, o.Verb+" "+o.Outcome)
		}
		if !slices.Equal(got, want) {
			k.Errorf("history = %v, want %v", got, want)
		}
	}
	all := []string{"RemovePodSandbox ok", "StopPodSandbox ok", "CreateContainer error", "RunPodSandbox ok"}
	k.eventually("the last operation is written", func() bool {
		out, _, _ := k.podd("history", pod[:12])
		return strings.Contains(out, "RemovePodSandbox")
	})
	verbs(all...)
	k.ok("kill podd", k.Kill9())
	verbs(all...) // from the files
	k.ok("start podd", k.Start(k.ctx()))
	verbs(all...)
	out, _, _ := k.podd("history", "--failed", "--stages")
	if strings.Count(out, "\n") < 2 || !strings.Contains(out, "no-such-file") || strings.Contains(out, "RunPodSandbox") {
		k.Errorf("history --failed, want the error of CreateContainer and its stages:\n%s", out)
	}
}
