package registry

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/types"

	"github.com/podd-project/podd/image/child"
)

// helperConfig puts a credential helper docker-credential-NAME with a script into PATH, and names it in an auth file
// for the registry a.test.
func helperConfig(t *testing.T, name, script string) Config {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	c := DefaultConfig()
	c.RegistriesConf = ""
	c.AuthFile = filepath.Join(dir, "auth.json")
	for path, content := range map[string]string{
		filepath.Join(dir, "docker-credential-"+name): "#!/bin/sh\n" + script,
		c.AuthFile: fmt.Sprintf(`{"credHelpers":{"a.test":%q},"auths":{"b.test/x":{"auth":"dTpw"}}}`, name),
	} {
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func named(t *testing.T, names ...string) (out []reference.Named) {
	t.Helper()
	for _, name := range names {
		ref, err := reference.ParseNormalizedNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, ref)
	}
	return out
}

// TestCredentialHelpers: what programs answer, and what they must not do.
func TestCredentialHelpers(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   types.DockerAuthConfig
		text   string // of the error
	}{
		"password": {`read host; echo '{"Username":"'$host'","Secret":"s"}'`,
			types.DockerAuthConfig{Username: "a.test", Password: "s"}, ""},
		"token":    {`echo '{"Username":"<token>","Secret":"s"}'`, types.DockerAuthConfig{IdentityToken: "s"}, ""},
		"none":     {"echo 'credentials not found in native keychain'; exit 1", types.DockerAuthConfig{}, ""},
		"failure":  {"echo 'log in again'; exit 1", types.DockerAuthConfig{}, "log in again"},
		"secret":   {`echo '{"Secret" : "to\"hide"}'; exit 1`, types.DockerAuthConfig{}, `"Secret":[hidden]`},
		"not JSON": {"echo nothing", types.DockerAuthConfig{}, "invalid character"},
		"much":     {"exec tr '\\0' x < /dev/zero", types.DockerAuthConfig{}, child.MemoryText},
		"left group": {`setsid sleep 5 & echo '{"Username":"a","Secret":"s"}'`,
			types.DockerAuthConfig{Username: "a", Password: "s"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			config := helperConfig(t, "test", c.script)
			got, err := config.findCredentials(t.Context(), named(t, "a.test/x", "b.test/x", "b.test/y"))
			if c.text != "" {
				if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), c.text) ||
					strings.Contains(err.Error(), "hide") || len(err.Error()) > maxErrorText+500 {
					t.Errorf("error %v, want a failed precondition with %q", err, c.text)
				}
				return
			}
			if err != nil || got["a.test/x"] != c.want || got["b.test/x"].Password != "p" || len(got) != 3 {
				t.Errorf("credentials %v, %v, want %v", got, err, c.want)
			}
		})
	}
	t.Run("no such program", func(t *testing.T) {
		c := helperConfig(t, "test", "")
		if err := os.Remove(filepath.Join(filepath.Dir(c.AuthFile), "docker-credential-test")); err != nil {
			t.Fatal(err)
		}
		_, err := c.findCredentials(t.Context(), named(t, "a.test/x"))
		if err == nil || !strings.Contains(err.Error(), "docker-credential-test") {
			t.Errorf("error %v, want one that names the program", err)
		}
	})
	t.Run("of another registry", func(t *testing.T) {
		c := helperConfig(t, "test", `: >"$0.ran"`)
		got, err := c.findCredentials(t.Context(), named(t, "b.test/x"))
		if err != nil || got["b.test/x"].Password != "p" {
			t.Errorf("credentials %v, %v, want those of the auth file", got, err)
		}
		if ran, _ := filepath.Glob(filepath.Dir(c.AuthFile) + "/*.ran"); len(ran) > 0 {
			t.Error("the helper ran, want it only for its registry")
		}
	})
}

// TestCredentialHelperHangs: a helper that does not answer is killed with what it has started.
func TestCredentialHelperHangs(t *testing.T) {
	c := helperConfig(t, "test", `sleep 100 & echo $! >"$0.pid"; wait`)
	job := helperJob{Config: c, Names: []string{"a.test/x"}}
	_, err := askHelpers(t.Context(), job, 2*time.Second)
	if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "did not answer within 2s") {
		t.Errorf("error %v, want unavailable", err)
	}
	raw, err := os.ReadFile(filepath.Join(filepath.Dir(c.AuthFile), "docker-credential-test.pid"))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(raw), &pid); err != nil {
		t.Fatal(err)
	}
	gone := func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	}
	for end := time.Now().Add(5 * time.Second); !gone() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if !gone() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		t.Error("what the helper has started runs on")
	}
}
