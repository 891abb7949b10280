package registry

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"

	"github.com/containerd/errdefs"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/types"
)

// String hides the credentials from %v and %s.
func (a Auth) String() string { return "[credentials]" }

// GoString hides the credentials from %#v.
func (a Auth) GoString() string { return "image.Auth{[credentials]}" }

// Apply puts the credentials into sys if they are for the registry of ref. The library sends them to that registry
// only, not to its mirrors, provided that DockerAuthConfig is set, even for a registry token.
func (a *Auth) Apply(sys *types.SystemContext, ref reference.Named) error {
	if a == nil || *a == (Auth{}) || !a.appliesTo(ref) {
		return nil
	}
	config, err := a.config()
	if err != nil {
		return err
	}
	if config == (types.DockerAuthConfig{}) && a.RegistryToken == "" {
		return nil
	}
	sys.DockerAuthConfig = &config
	sys.DockerBearerRegistryToken = a.RegistryToken
	return nil
}

// config converts the first that is set of: identity token, user name and password, the two in base64.
func (a *Auth) config() (types.DockerAuthConfig, error) {
	switch {
	case a.IdentityToken != "":
		return types.DockerAuthConfig{Username: a.Username, IdentityToken: a.IdentityToken}, nil
	case a.Username != "" || a.Password != "":
		return types.DockerAuthConfig{Username: a.Username, Password: a.Password}, nil
	case a.Auth == "":
		return types.DockerAuthConfig{}, nil
	}
	raw, err := base64.StdEncoding.DecodeString(a.Auth)
	if err != nil {
		return types.DockerAuthConfig{}, fmt.Errorf("credentials: auth is not base64: %w", errdefs.ErrInvalidArgument)
	}
	user, password, ok := strings.Cut(string(raw), ":")
	if !ok {
		return types.DockerAuthConfig{},
			fmt.Errorf("credentials: auth is not user:password in base64: %w", errdefs.ErrInvalidArgument)
	}
	// Old docker clients padded the text with zero bytes.
	return types.DockerAuthConfig{Username: user, Password: strings.Trim(password, "\x00")}, nil
}

// appliesTo reports whether the credentials may be sent to the registry of ref.
func (a *Auth) appliesTo(ref reference.Named) bool {
	return a.ServerAddress == "" || registryHost(a.ServerAddress) == registryHost(reference.Domain(ref))
}

// ForShortName returns the credentials of a request with a short name. The kubelet has looked them up for docker.io, so
// no other registry that is searched for the name gets them, unless they name it.
func (a *Auth) ForShortName() *Auth {
	if a == nil || a.ServerAddress != "" {
		return a
	}
	own := *a
	own.ServerAddress = "docker.io"
	return &own
}

// registryHost returns the host and port of a registry in any notation: "quay.io", "https://quay.io/v2/". Docker Hub
// has several hosts.
func registryHost(address string) string {
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	switch host := strings.ToLower(u.Host); host {
	case "index.docker.io", "registry-1.docker.io", "registry.docker.io":
		return "docker.io"
	default:
		return host
	}
}

// Auth is CRI's AuthConfig. It prints as "[credentials]", but must not be logged all the same.
type Auth struct {
	Username, Password string
	Auth               string // base64 of username:password
	ServerAddress      string // if set, the only registry that gets the credentials
	IdentityToken      string
	RegistryToken      string
}
