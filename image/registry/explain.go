package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"
)

// Explanation describes a pull of a name, by the files of the node. A pod's own credentials are not known here.
type Explanation struct {
	// Name is a full name: a short name has an explanation for each registry that is searched, in order.
	Name string `json:"name"`
	// Registry is the prefix of the table of registries.conf that applies, empty if none does.
	Registry string `json:"registry,omitempty"`
	// Blocked says that registries.conf forbids the pull.
	Blocked bool `json:"blocked,omitempty"`
	// Sources are tried in this order: mirrors, then the registry.
	Sources []ExplainedSource `json:"sources"`
	Policy  ExplainedPolicy   `json:"policy"`
}

// ExplainedSource is a place that an image is pulled from.
type ExplainedSource struct {
	Name string `json:"name"`
	// Insecure allows HTTP, and TLS without verification of the certificate.
	Insecure bool `json:"insecure,omitempty"`
	// Certificates are the directories with certificates and keys for the host that exist, the first is used.
	Certificates []string `json:"certificates,omitempty"`
	// User is the user of the node's credentials for it, empty if there are none.
	User string `json:"user,omitempty"`
}

// ExplainedPolicy is the part of the signature policy that decides.
type ExplainedPolicy struct {
	// File is empty without a policy: then every image is accepted.
	File string `json:"file,omitempty"`
	// Scope is the key of the policy that applies to the name, "default" if no other does.
	Scope        string   `json:"scope,omitempty"`
	Requirements []string `json:"requirements"`
}

// Explain describes a pull of ref, with the files as they are now. It contacts no registry, but may run the
// credential helpers that the files name. For the pods of a namespace, cfg is the result of ForNamespace.
func Explain(ctx context.Context, cfg Config, ref string) ([]Explanation, error) {
	sysregistriesv2.InvalidateCache()
	scratch, err := os.MkdirTemp("", "podd-explain-")
	if err != nil {
		return nil, fmt.Errorf("explain %s: %w", ref, err)
	}
	defer os.RemoveAll(scratch)
	names, err := cfg.Candidates(ref, scratch)
	if err != nil {
		return nil, err
	}
	var out []Explanation
	for _, name := range names {
		e, err := cfg.explain(ctx, name)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func (c Config) explain(ctx context.Context, name reference.Named) (Explanation, error) {
	e := Explanation{Name: name.String()}
	registry, err := sysregistriesv2.FindRegistry(c.SystemContext(), name.Name())
	if err != nil {
		return e, fmt.Errorf("look %s up in registries.conf: %w", name.Name(), err)
	}
	sources := []Source{{Reference: name}}
	if registry != nil {
		e.Registry, e.Blocked = registry.Prefix, registry.Blocked
		if sources, err = registry.PullSourcesFromReference(name); err != nil {
			return e, fmt.Errorf("find the mirrors of %s: %w", name, err)
		}
	}
	var all []reference.Named
	for _, source := range sources {
		all = append(all, source.Reference)
	}
	credentials, err := c.findCredentials(ctx, all)
	if err != nil {
		return e, err
	}
	for _, source := range sources {
		e.Sources = append(e.Sources, ExplainedSource{
			Name: source.Reference.String(), Insecure: source.Endpoint.Insecure,
			Certificates: certificatesFor(reference.Domain(source.Reference)),
			User:         userOf(credentials[source.Reference.Name()]),
		})
	}
	e.Policy, err = c.explainPolicy(name)
	return e, err
}

// userOf names the owner of credentials, never more of them.
func userOf(found types.DockerAuthConfig) string {
	if found.Username == "" && found.IdentityToken != "" {
		return "(identity token)"
	}
	return found.Username
}

// certificatesFor returns the directories of containers-certs.d(5) for a host that exist.
func certificatesFor(host string) (dirs []string) {
	for _, parent := range CertificateDirs {
		dir := filepath.Join(parent, host)
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// explainPolicy finds the scope of the signature policy as containers-policy.json(5) says: the most specific one.
func (c Config) explainPolicy(name reference.Named) (ExplainedPolicy, error) {
	if c.Policy == "" {
		return ExplainedPolicy{Requirements: []string{"insecureAcceptAnything"}}, nil
	}
	if _, err := os.Stat(c.Policy); !c.PolicyRequired && errors.Is(err, fs.ErrNotExist) {
		return ExplainedPolicy{Requirements: []string{"insecureAcceptAnything"}}, nil
	}
	policy, err := signature.NewPolicyFromFile(c.Policy)
	if err != nil {
		return ExplainedPolicy{}, fmt.Errorf("read signature policy: %w", err)
	}
	ref, err := docker.NewReference(name)
	if err != nil {
		return ExplainedPolicy{}, err
	}
	scopes := policy.Transports[ref.Transport().Name()]
	for _, scope := range append([]string{ref.PolicyConfigurationIdentity()}, ref.PolicyConfigurationNamespaces()...) {
		if requirements, ok := scopes[scope]; ok {
			return explainRequirements(c.Policy, scope, requirements)
		}
	}
	if requirements, ok := scopes[""]; ok {
		return explainRequirements(c.Policy, "docker", requirements)
	}
	return explainRequirements(c.Policy, "default", policy.Default)
}

// explainRequirements returns the types of requirements and the files of their keys.
func explainRequirements(file, scope string, all signature.PolicyRequirements) (ExplainedPolicy, error) {
	out := ExplainedPolicy{File: file, Scope: scope}
	for _, r := range all {
		raw, err := json.Marshal(r)
		if err != nil {
			return out, err
		}
		var fields struct {
			Type     string   `json:"type"`
			KeyPath  string   `json:"keyPath"`
			KeyPaths []string `json:"keyPaths"`
		}
		if err := json.Unmarshal(raw, &fields); err != nil {
			return out, err
		}
		words := append([]string{fields.Type}, fields.KeyPaths...)
		if fields.KeyPath != "" {
			words = append(words, fields.KeyPath)
		}
		out.Requirements = append(out.Requirements, strings.Join(words, " "))
	}
	return out, nil
}
