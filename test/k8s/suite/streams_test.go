package suite

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// followed is a buffer for the output of a command, which can be read while the command runs.
type followed struct {
	mu   sync.Mutex
	data bytes.Buffer
}

func (f *followed) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.data.Write(b)
}

func (f *followed) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.data.String()
}

// follow starts to follow a pod's log. With wait it returns when it has the first output. The function returned waits
// for the end of the log and returns all of it.
func (k *scene) follow(pod string, wait bool, args ...string) func() string {
	k.Helper()
	cmd := k.command(context.Background(), append([]string{"logs", "-f", pod}, args...)...)
	var out, errs followed
	cmd.Stdout, cmd.Stderr = &out, &errs
	k.ok("follow", cmd.Start())
	if wait {
		k.eventually("kubectl prints the log", func(context.Context) error {
			if out.String() == "" {
				return fmt.Errorf("no output yet, stderr %q", errs.String())
			}
			return nil
		})
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	k.Cleanup(func() { _ = cmd.Process.Kill() }) // fails if it has ended
	return func() string {
		k.Helper()
		select {
		case err := <-done:
			k.ok("kubectl logs -f: "+errs.String(), err)
		case <-time.After(limit):
			k.Fatalf("kubectl logs -f has printed %d bytes and still runs after %v", len(out.String()), limit)
		}
		return out.String()
	}
}

// noSandbox waits until podd has no ready sandbox of that pod.
func (k *scene) noSandbox(pod string) {
	k.Helper()
	k.eventually("podd has stopped "+pod, func(context.Context) error {
		out, err := c.Node(k.node).Crictl("pods", "-q", "--state", "Ready", "--namespace", "^"+k.ns+"$", "--name",
			"^"+pod+"$")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("ready sandboxes: %q, want none", out)
		}
		return err
	})
}

func TestLogs(t *testing.T) {
	k := parallel(t)
	k.run("p", `
restartPolicy: Never
containers:
- name: c
  image: BUSYBOX
  command: [sh, -c, "for i in 1 2 3; do echo out $i; done; while ! [ -e /go ]; do sleep 0.1; done;
    printf unfinished; sleep 1; echo ' line'; echo last; echo err >&2"]
`)
	k.eventually("the log has the first lines", func(context.Context) error {
		if out := k.logs("p"); !strings.Contains(out, "out 3\n") {
			return errors.New(out)
		}
		return nil
	})
	k.same("with --tail", k.logs("p", "--tail=1"), "out 3\n")
	stamp, _, _ := strings.Cut(k.logs("p", "--timestamps", "--tail=1"), " ")
	if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil {
		t.Errorf("logs --timestamps: first word = %q, want an RFC 3339 timestamp: %v", stamp, err)
	}
	follow := k.follow("p", true, "--since=1h")
	k.sh("p", "touch /go")
	k.ended("p", corev1.PodSucceeded)
	out := follow()
	k.contains("the log", out, "out 1\nout 2\nout 3\n", "unfinished line\n", "last\n", "err\n")
	k.same("bytes of the log afterwards", len(k.logs("p")), len(out))
}

// The kubelet rotates a log that has grown: its files have every line, and kubectl logs -f prints them in their order.
func TestLogRotation(t *testing.T) {
	k := parallel(t)
	p := k.run("p", `
restartPolicy: Never
containers:
- name: c
  image: BUSYBOX
  command: [sh, -c, "touch /more; mkfifo /gate; read go < /gate; i=0; while [ -e /more ]; do i=$((i+1));
    echo line $i of a log that is written slowly enough to be followed
    but fast enough to be rotated now and then while somebody reads it;
    [ $((i % 500)) = 0 ] && sleep 0.2; done; echo end $i"]
`)
	follow := k.follow("p", false)
	k.sh("p", "while ! [ -p /gate ]; do sleep 0.1; done; echo go > /gate")
	dir := c.Node(k.node).Path("pods", fmt.Sprintf("%s_p_%s", k.ns, p.UID), "c")
	k.eventually("the log was rotated twice", func(context.Context) error {
		list, err := filepath.Glob(filepath.Join(dir, "0.log*"))
		if err == nil && len(list) < 3 {
			err = fmt.Errorf("log files = %v, want at least 3", list)
		}
		return err
	})
	k.sh("p", "rm /more")
	k.ended("p", corev1.PodSucceeded)
	total := 0
	k.eventually("the files have every line", func(context.Context) (err error) {
		total, err = countLines(dir)
		return err
	})
	last := 0
	lines := strings.Split(strings.TrimSuffix(follow(), "\n"), "\n")
	for _, l := range lines[:len(lines)-1] {
		n := 0
		if _, err := fmt.Sscanf(l, "line %d of", &n); err != nil || n <= last {
			t.Fatalf("line after line %d = %q, want a later one", last, l)
		}
		last = n
	}
	k.same("the last line", lines[len(lines)-1], fmt.Sprintf("end %d", total))
	// When the log is rotated the kubelet drops what it has not read of the old file, if it had read to its end before
	// (ReadLogs of k8s.io/cri-client): a few lines, on a busy machine.
	if missing := total - (len(lines) - 1); missing > 100 {
		t.Errorf("kubectl logs -f lacks %d of %d lines, want at most a few for each rotation", missing, total)
	}
}

// countLines returns how many lines the log files in the directory have. It fails unless they are numbered from 1.
func countLines(dir string) (int, error) {
	rotated, err := filepath.Glob(filepath.Join(dir, "0.log.*"))
	if err != nil {
		return 0, err
	}
	sort.Strings(rotated) // by time
	text := ""
	for _, path := range append(rotated, filepath.Join(dir, "0.log")) {
		more, err := readLog(path)
		if err != nil {
			return 0, err
		}
		text += more
	}
	partial := regexp.MustCompile(`\S+ stdout P (.*)\n\S+ stdout (P|F) `)
	for partial.MatchString(text) {
		text = partial.ReplaceAllString(text, "TIME stdout $2 $1")
	}
	n := 0
	for line := range strings.Lines(text) {
		if strings.Contains(line, " F end ") {
			return n, nil
		}
		if n++; !strings.Contains(line, fmt.Sprintf(" F line %d of", n)) {
			return 0, fmt.Errorf("log has %q, want line %d", line, n)
		}
	}
	return 0, fmt.Errorf("no end after line %d of %v", n, rotated)
}

// readLog returns the text of a log file, which the kubelet may have compressed.
func readLog(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			return "", err
		}
	}
	data, err := io.ReadAll(r)
	return string(data), err
}

// protocols are kubectl's streaming protocols, with the environment variables that select them.
var protocols = map[string][]string{
	"websocket": {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true", "KUBECTL_PORT_FORWARD_WEBSOCKETS=true"},
	"spdy":      {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"},
}

func TestStreams(t *testing.T) {
	for name, env := range protocols {
		t.Run(name, func(t *testing.T) {
			k := parallel(t)
			k.run("p", `
containers:
- {name: web, image: NGINX}
- {name: cat, image: BUSYBOX, stdin: true, command: [sh, -c, "while read l; do echo \"got $l\"; done; sleep 10000"]}
`)
			k.exec(env)
			k.attach(env)
			k.copy(env)
			k.forward(env)
		})
	}
}

// with runs kubectl with more environment variables and an input.
func (k *scene) with(env []string, input string, args ...string) (out, errs string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := k.command(ctx, args...)
	cmd.Env = append(cmd.Env, env...)
	var o, e bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &o, &e
	err = cmd.Run()
	return o.String(), e.String(), err
}

func (k *scene) exec(env []string) {
	k.Helper()
	out, errs, err := k.with(env, "hello", "exec", "-i", "p", "-c", "web", "--", "sh", "-c",
		"cat; echo problem >&2; exit 7")
	k.same("stdout", out, "hello")
	k.contains("stderr", errs, "problem")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		k.Errorf("exec = %v, want exit code 7", err)
	}
	big := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB each way
	out, _, err = k.with(env, big, "exec", "-i", "p", "-c", "web", "--", "cat")
	if err != nil || out != big {
		k.Errorf("1 MiB through cat: got %d bytes, %v, want the input back", len(out), err)
	}
	// script(1) gives kubectl the terminal that -t needs.
	line := strings.Join(k.command(context.Background(), "exec", "-it", "p", "-c", "web", "--", "sh", "-c",
		"'test -t 0 && test -t 1 && stty size'").Args, " ")
	cmd := exec.Command("script", "-qec", "stty rows 33 cols 101; "+line, "/dev/null")
	cmd.Env = append(append(os.Environ(), "HOME="+k.TempDir()), env...)
	data, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(data), "33 101") {
		k.Errorf("exec with a terminal = %q, %v, want size 33 101", data, err)
	}
	if _, errs, err := k.with(env, "", "exec", "p", "-c", "web", "--", "no-such-program"); err == nil ||
		!strings.Contains(errs, "no-such-program") {
		k.Errorf("exec of a missing program = %v, %q, want an error that names it", err, errs)
	}
}

// attach sends lines to the process and checks its answers.
func (k *scene) attach(env []string) {
	k.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := k.command(ctx, "attach", "-i", "p", "-c", "cat")
	cmd.Env = append(cmd.Env, env...)
	in, err := cmd.StdinPipe()
	k.ok("attach", err)
	out, err := cmd.StdoutPipe()
	k.ok("attach", err)
	k.ok("attach", cmd.Start())
	answers := bufio.NewScanner(out)
	for _, word := range []string{"one", "two"} {
		_, err = io.WriteString(in, word+"\n")
		k.ok("write", err)
		if !answers.Scan() || answers.Text() != "got "+word {
			k.Errorf("attach: answer to %s = %q, %v, want %q", word, answers.Text(), answers.Err(), "got "+word)
		}
	}
	cancel() // kubectl would run until the container exits
	_ = cmd.Wait()
	k.contains("the log", k.logs("p", "-c", "cat"), "got one\ngot two\n")
}

// copy copies 3 MiB to the pod and back.
func (k *scene) copy(env []string) {
	k.Helper()
	dir := k.TempDir()
	data := make([]byte, 3<<20)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	k.ok("write", os.WriteFile(filepath.Join(dir, "there"), data, 0o644))
	for _, args := range [][]string{
		{"cp", filepath.Join(dir, "there"), k.ns + "/p:/tmp/file", "-c", "web"},
		{"cp", k.ns + "/p:/tmp/file", filepath.Join(dir, "back"), "-c", "web"},
	} {
		if out, errs, err := k.with(env, "", args...); err != nil {
			k.Fatalf("kubectl %v: %v %s %s", args, err, out, errs)
		}
	}
	back, err := os.ReadFile(filepath.Join(dir, "back"))
	k.ok("read", err)
	sum := sha256.Sum256(data)
	k.contains("the sum in the pod", k.kubectl("exec", "p", "-c", "web", "--", "sha256sum", "/tmp/file"),
		hex.EncodeToString(sum[:]))
	k.same("the file is unchanged", bytes.Equal(back, data), true)
}

// forward fetches a page through kubectl port-forward several times, then connects to a port without a listener.
func (k *scene) forward(env []string) {
	k.Helper()
	cmd := k.command(context.Background(), "port-forward", "p", ":80", ":9")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.StdoutPipe()
	k.ok("port-forward", err)
	k.ok("port-forward", cmd.Start())
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	ports := map[int]int{}
	for s := bufio.NewScanner(out); len(ports) < 2 && s.Scan(); {
		var from, to int
		if _, err := fmt.Sscanf(s.Text(), "Forwarding from 127.0.0.1:%d -> %d", &from, &to); err == nil {
			ports[to] = from
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	for range 3 {
		res, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", ports[80]))
		k.ok("fetch a page", err)
		page, err := io.ReadAll(res.Body)
		k.ok("read the page", errors.Join(err, res.Body.Close()))
		k.contains("the page", string(page), "nginx")
	}
	if res, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", ports[9])); err == nil {
		k.Errorf("GET from port 9, which has no listener = %v, want an error", res.Status)
	}
}
