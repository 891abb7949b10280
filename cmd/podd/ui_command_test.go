package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/podd-project/podd/cmd/podd/state"
)

// TestUI: the command prints an address whose token opens the page of the running daemon, and ends when it is
// interrupted.
func TestUI(t *testing.T) {
	s := newSite(t)
	s.start(t, nil)
	for name, path := range map[string]string{"loopback": "", "socket": s.path("ui.sock")} {
		t.Run(name, func(t *testing.T) {
			address := "127.0.0.1:0"
			if path != "" {
				address = "unix:" + path
			}
			cmd := s.command("ui", "--address", address)
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			base, token, ok := strings.Cut(strings.TrimSpace(line), "/#token=")
			if err != nil || !ok {
				t.Fatalf("podd ui printed %q, %v, want an address with a token", line, err)
			}
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialUI(path)}}
			if got := readStatus(t, &client, base, token); !strings.Contains(got, `"version":"v1.2.3-test"`) {
				t.Errorf("the page's status is %.200s, want that of the daemon", got)
			}
			if info, err := os.Lstat(path); path != "" && (err != nil || info.Mode() != os.ModeSocket|state.RootSocketMode) {
				t.Errorf("%s = %v, %v, want a socket for root only", path, info, err)
			}
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("interrupted podd ui ended with %v, want success", err)
			}
			if _, err := os.Lstat(path); path != "" && !os.IsNotExist(err) {
				t.Errorf("Lstat(%s) = %v after the end, want not exist", path, err)
			}
		})
	}
	code, text := s.fail(t, "ui", "--address", "10.0.0.1:80")
	if code != exitConfig || !strings.Contains(text, "not an address of the loopback interface") {
		t.Errorf("podd ui --address 10.0.0.1:80 = %d %s, want %d and why", code, text, exitConfig)
	}
}

// dialUI connects to a socket, or to the address of the request if path is empty.
func dialUI(path string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if path != "" {
			network, address = "unix", path
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
}

// readStatus logs in and returns the answer to a request for the status.
func readStatus(t *testing.T, client *http.Client, base, token string) string {
	t.Helper()
	login, err := client.Post(base+"/login", "application/json", strings.NewReader(`{"token":"`+token+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer login.Body.Close()
	var answer struct{ Key string }
	if err := json.NewDecoder(login.Body).Decode(&answer); err != nil || answer.Key == "" {
		t.Fatalf("login = %s, %v, want a key", login.Status, err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/status", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+answer.Key)
	status, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer status.Body.Close()
	text, err := io.ReadAll(status.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
