package image_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/image"
)

// Credentials that must not appear in logs, errors or requests to other registries.
const (
	user     = "some-user"
	password = "pa55w0rd-to-hide"
	identity = "identity-token-to-hide"
	bearer   = "registry-token-to-hide"
)

// basicAuth guards a registry with a user name and password.
func basicAuth(w http.ResponseWriter, r *http.Request) bool {
	if u, p, ok := r.BasicAuth(); ok && u == user && p == password {
		return false
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
	refuse(w, http.StatusUnauthorized, "UNAUTHORIZED")
	return true
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"errors":[{"code":%q,"message":"go away"}]}`, code)
}

func base64Of(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestBasicAuth(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	reg.setGuard(basicAuth)
	for name, c := range map[string]struct {
		auth *image.Auth
		is   func(error) bool
	}{
		"name and password":       {&image.Auth{Username: user, Password: password}, isNil},
		"base64":                  {&image.Auth{Auth: base64Of(user + ":" + password)}, isNil},
		"base64 of an old docker": {&image.Auth{Auth: base64Of(user + ":" + password + "\x00\x00")}, isNil},
		"for this registry": {&image.Auth{Username: user, Password: password,
			ServerAddress: "http://" + reg.host + "/v2/"}, isNil},
		"none":           {nil, errdefs.IsUnauthorized},
		"empty":          {&image.Auth{}, errdefs.IsUnauthorized},
		"wrong password": {&image.Auth{Username: user, Password: "guess-to-hide"}, errdefs.IsUnauthorized},
		"for another registry": {&image.Auth{Username: user, Password: password, ServerAddress: "registry.test"},
			errdefs.IsUnauthorized},
		"not base64":        {&image.Auth{Auth: "%%%" + password}, errdefs.IsInvalidArgument},
		"base64 of no pair": {&image.Auth{Auth: base64Of(password)}, errdefs.IsInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, config(t, reg.host))
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1", Auth: c.auth})
			if !c.is(err) {
				t.Errorf("pull = %v, want another error", err)
			}
			if err != nil && (strings.Contains(err.Error(), password) || strings.Contains(err.Error(), "guess-to-hide")) {
				t.Errorf("error %q contains the password", err)
			}
		})
	}
}

func isNil(err error) bool { return err == nil }

func TestAuthFile(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	reg.setGuard(basicAuth)
	cfg := config(t, reg.host)
	writeFile(t, cfg.AuthFile, fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, reg.host, base64Of(user+":"+password)))
	s := open(t, cfg)
	pull(t, s, reg.host+"/app:v1")
}

// TestCredentialsOfHome: those that a person keeps in the home directory or session of root are not used for pods.
func TestCredentialsOfHome(t *testing.T) {
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	reg.setGuard(basicAuth)
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_RUNTIME_DIR", home)
	auths := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, reg.host, base64Of(user+":"+password))
	writeFile(t, filepath.Join(home, ".docker/config.json"), auths)
	writeFile(t, filepath.Join(home, "containers/auth.json"), auths)
	cfg := config(t, reg.host)
	cfg.AuthFile = ""
	s := open(t, cfg)
	_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
	if !errdefs.IsUnauthorized(err) {
		t.Errorf("pull = %v, want unauthorized", err)
	}
}

func TestDenied(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.setGuard(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v2/" {
			refuse(w, http.StatusForbidden, "DENIED")
			return true
		}
		return false
	})
	s := open(t, config(t, reg.host))
	_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
	if !errdefs.IsPermissionDenied(err) {
		t.Errorf("error %v, want permission denied", err)
	}
}

// tokenServer requires a token for a registry: it issues one for an identity token, or a name and password.
func tokenServer(reg *testRegistry) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/token" {
			u, p, _ := r.BasicAuth()
			if u == user && p == password || r.PostFormValue("refresh_token") == identity {
				_ = json.NewEncoder(w).Encode(map[string]string{"token": bearer, "access_token": bearer})
				return true
			}
			refuse(w, http.StatusUnauthorized, "UNAUTHORIZED")
			return true
		}
		if r.Header.Get("Authorization") == "Bearer "+bearer {
			return false
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="test"`, reg.host))
		refuse(w, http.StatusUnauthorized, "UNAUTHORIZED")
		return true
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	reg.setGuard(tokenServer(reg))
	for name, c := range map[string]struct {
		auth image.Auth
		is   func(error) bool
	}{
		"password":             {image.Auth{Username: user, Password: password}, isNil},
		"identity token":       {image.Auth{IdentityToken: identity}, isNil},
		"registry token":       {image.Auth{RegistryToken: bearer}, isNil},
		"wrong identity token": {image.Auth{IdentityToken: "other"}, errdefs.IsUnauthorized},
		"wrong registry token": {image.Auth{RegistryToken: "other"}, errdefs.IsUnauthorized},
		"token for another registry": {image.Auth{RegistryToken: bearer, ServerAddress: "registry.test"},
			errdefs.IsUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, config(t, reg.host))
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1", Auth: &c.auth})
			if !c.is(err) {
				t.Errorf("pull = %v, want another error", err)
			}
		})
	}
}

// TestMirrorsGetNoCredentials: a pod's credentials are sent to the registry that they name, not to its mirrors,
// whatever challenge these send.
func TestMirrorsGetNoCredentials(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"Basic", "Bearer"} {
		t.Run(scheme, func(t *testing.T) {
			mirror, origin := newRegistry(t), newRegistry(t)
			origin.push(t, "app:v1", simple(t, "x"))
			origin.setGuard(basicAuth)
			got := askForCredentials(mirror, scheme)
			cfg := config(t)
			writeFile(t, cfg.RegistriesConf, `
[[registry]]
location = "`+origin.host+`"
insecure = true
[[registry.mirror]]
location = "`+mirror.host+`"
insecure = true
`)
			s := open(t, cfg)
			for _, auth := range []image.Auth{{Username: user, Password: password}, {RegistryToken: bearer},
				{IdentityToken: identity}, {Username: user, Password: password}} { // the last when it is present
				_, err := s.Pull(t.Context(), image.PullRequest{Ref: origin.host + "/app:v1", Auth: &auth})
				if auth.Username != "" && err != nil {
					t.Error(err)
				}
			}
			text := got()
			if text == "" {
				t.Error("the mirror was not asked")
			}
			for _, secret := range []string{"hide", base64Of(user + ":" + password)} {
				if strings.Contains(text, secret) {
					t.Errorf("the mirror received credentials:\n%s", text)
				}
			}
		})
	}
}

// askForCredentials makes a registry refuse every request with a challenge. It returns a function that returns all
// requests so far, with bodies.
func askForCredentials(reg *testRegistry, scheme string) func() string {
	var mu sync.Mutex
	var text strings.Builder
	reg.setGuard(func(w http.ResponseWriter, r *http.Request) bool {
		dump, err := httputil.DumpRequest(r, true)
		mu.Lock()
		fmt.Fprintf(&text, "%s %v\n", dump, err)
		mu.Unlock()
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`%s realm="http://%s/token"`, scheme, reg.host))
		refuse(w, http.StatusUnauthorized, "UNAUTHORIZED")
		return true
	})
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return text.String()
	}
}

// logCatcher records all log entries.
type logCatcher struct {
	mu   sync.Mutex
	text strings.Builder
}

func (*logCatcher) Levels() []logrus.Level { return logrus.AllLevels }

func (c *logCatcher) Fire(e *logrus.Entry) error {
	s, err := e.String()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text.WriteString(s)
	return err
}

// TestNoCredentialsInLogs pulls with every kind of credential, with and without success, at log level trace.
func TestNoCredentialsInLogs(t *testing.T) {
	t.Parallel()
	logger := logrus.StandardLogger()
	catcher := &logCatcher{}
	before, out := logger.GetLevel(), logger.Out
	hooks := logger.ReplaceHooks(logrus.LevelHooks{})
	logger.SetLevel(logrus.TraceLevel)
	logger.SetOutput(devNull{})
	logger.AddHook(catcher)
	t.Cleanup(func() {
		logger.ReplaceHooks(hooks)
		logger.SetLevel(before)
		logger.SetOutput(out)
	})
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	reg.setGuard(tokenServer(reg))
	s := open(t, config(t, reg.host))
	for _, ref := range []string{"/app:v1", "/app:v2"} {
		for _, auth := range []image.Auth{
			{Username: user, Password: password}, {Auth: base64Of(user + ":" + password)}, {IdentityToken: identity},
			{RegistryToken: bearer}, {Username: user, Password: password + "-wrong"}, {Auth: "%" + password},
		} {
			_, _ = s.Pull(t.Context(), image.PullRequest{Ref: reg.host + ref, Auth: &auth, Namespace: "ns"})
		}
	}
	catcher.mu.Lock()
	defer catcher.mu.Unlock()
	text := catcher.text.String()
	if !strings.Contains(text, "pulled image") || !strings.Contains(text, "failed to pull image") {
		t.Fatalf("log lacks the messages about the pulls:\n%s", text)
	}
	for _, secret := range []string{password, base64Of(user + ":" + password), identity, bearer,
		url.QueryEscape(password)} {
		if i := strings.Index(text, secret); i >= 0 {
			t.Errorf("log contains a secret: %s", text[max(0, i-100):i+len(secret)])
		}
	}
}

type devNull struct{}

func (devNull) Write(p []byte) (int, error) { return len(p), nil }

func TestAuthDoesNotPrint(t *testing.T) {
	t.Parallel()
	auth := image.Auth{Username: user, Password: password, Auth: password, IdentityToken: identity, RegistryToken: bearer}
	r := image.PullRequest{Ref: "x", Auth: &auth}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		for _, what := range []any{auth, &auth, r, &r} {
			if text := fmt.Sprintf(format, what); strings.Contains(text, "hide") {
				t.Errorf("%s of %T prints %s", format, what, text)
			}
		}
	}
}

// TestChallengeOfAnotherServer: a registry can name any server that the node reaches as its token server; the error of
// the pull has nothing of what that answers.
func TestChallengeOfAnotherServer(t *testing.T) {
	t.Parallel()
	const secret = "answer-to-hide"
	status := http.StatusOK
	var asked atomic.Bool
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Store(true)
		w.WriteHeader(status)
		fmt.Fprint(w, secret)
	}))
	defer inside.Close()
	reg := newRegistry(t)
	reg.setGuard(func(w http.ResponseWriter, _ *http.Request) bool {
		where := strings.Replace(inside.URL, "http://", "http://user:password-to-hide@", 1)
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/metadata?key=query-to-hide"`, where))
		refuse(w, http.StatusUnauthorized, "UNAUTHORIZED")
		return true
	})
	s := open(t, config(t, reg.host, strings.TrimPrefix(inside.URL, "http://")))
	for _, status = range []int{http.StatusOK, http.StatusNotFound, http.StatusForbidden, http.StatusInternalServerError} {
		_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
		if err == nil || strings.Contains(err.Error(), "to-hide") {
			t.Errorf("error %v of a token server that answers %d, want nothing of its answer or its URL", err, status)
		}
	}
	if !asked.Load() {
		t.Error("the other server was not asked")
	}
}

// TestCredentialHelper: the node's credential helpers run for pulls, also for those of mirrors and of present images,
// with podd's PATH, while nothing of the auth file but the pull's credentials reaches its process.
func TestCredentialHelper(t *testing.T) {
	for _, where := range []string{"auth file", "registries.conf"} {
		t.Run(where, func(t *testing.T) {
			mirror, origin := newRegistry(t), newRegistry(t)
			mirror.push(t, "app:v1", simple(t, "x"))
			mirror.forget() // requests of push
			mirror.setGuard(basicAuth)
			cfg := config(t)
			conf := fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n"+
				"[[registry.mirror]]\nlocation = %q\ninsecure = true\n", origin.host, mirror.host)
			if where == "auth file" {
				writeFile(t, cfg.AuthFile, fmt.Sprintf(`{"credHelpers":{%q:"podd-test"}}`, mirror.host))
			} else {
				conf = "credential-helpers = [\"podd-test\"]\n" + conf
			}
			writeFile(t, cfg.RegistriesConf, conf)
			dir := t.TempDir()
			program := filepath.Join(dir, "docker-credential-podd-test")
			writeFile(t, program, fmt.Sprintf("#!/bin/sh\nread host\n[ \"$host\" = %s ] || "+
				"{ echo 'credentials not found in native keychain'; exit 1; }\necho '{\"Username\":%q,\"Secret\":%q}'\n",
				mirror.host, user, password))
			if err := os.Chmod(program, 0o700); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			s := open(t, cfg)
			for range 2 { // the second time it is present
				pull(t, s, origin.host+"/app:v1")
			}
			checkNoFiles(t, filepath.Join(cfg.Root, "tmp"))
			if n := origin.count("GET"); n > 0 {
				t.Errorf("%d requests to the origin, want all to the mirror, which has credentials", n)
			}
			if n := mirror.count("HEAD /v2/app/manifests/v1"); n != 1 {
				t.Errorf("%d requests for the digest of the present image, want 1", n)
			}
			writeFile(t, program, "#!/bin/sh\necho log in again\nexit 1\n")
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: origin.host + "/app:v1"})
			if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "log in again") {
				t.Errorf("error %v, want a failed precondition with the helper's message", err)
			}
		})
	}
}
