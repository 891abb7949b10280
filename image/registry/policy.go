package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	containersimage "go.podman.io/image/v5/image"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"
)

// PolicyContext reads the signature policy; the caller destroys it. Without a policy file every image is accepted,
// unless there must be one.
func (c Config) PolicyContext() (*signature.PolicyContext, error) {
	if c.Policy == "" {
		return AcceptAnything()
	}
	policy, err := signature.NewPolicyFromFile(c.Policy)
	if errors.Is(err, fs.ErrNotExist) && !c.PolicyRequired {
		return AcceptAnything()
	}
	if err != nil {
		return nil, fmt.Errorf("read signature policy %s: %w", c.Policy, err)
	}
	return signature.NewPolicyContext(policy)
}

// AcceptAnything is for what no policy is about, and for images that the policy has accepted already.
func AcceptAnything() (*signature.PolicyContext, error) {
	return signature.NewPolicyContext(&signature.Policy{
		Default: signature.PolicyRequirements{signature.NewPRInsecureAcceptAnything()},
	})
}

// AcceptsUnsigned reports whether the signature policy accepts an image for its name alone, without reading any
// signature. Name is a full name with a tag or a digest.
func (c Config) AcceptsUnsigned(ctx context.Context, name string) bool {
	named, err := reference.ParseNamed(name)
	if err != nil {
		return false
	}
	ref, err := docker.NewReference(named)
	if err != nil {
		return false
	}
	policy, err := c.PolicyContext()
	if err != nil {
		return false // the pull's process says why
	}
	defer func() { _ = policy.Destroy() }() // frees memory
	accepted, err := policy.IsRunningImageAllowed(ctx, containersimage.UnparsedInstance(nameOnly{ref: ref}, nil))
	return accepted && err == nil
}

// nameOnly is the source of an image of which only the name may be needed: its content is read in a pull's
// process only.
type nameOnly struct {
	types.ImageSource
	ref types.ImageReference
}

var errNameOnly = errors.New("manifests and signatures are read in a pull's process only")

func (s nameOnly) Reference() types.ImageReference { return s.ref }

func (nameOnly) GetManifest(context.Context, *digest.Digest) ([]byte, string, error) {
	return nil, "", errNameOnly
}

func (nameOnly) GetSignatures(context.Context, *digest.Digest) ([][]byte, error) {
	return nil, errNameOnly
}

// PolicyStamp changes when the policy, or a file that it names, does.
func (c Config) PolicyStamp() string {
	var out strings.Builder
	for _, path := range append([]string{c.Policy}, PolicyPaths(c.Policy)...) {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(&out, "%s missing\n", path)
		} else if err == nil {
			fmt.Fprintf(&out, "%s %s\n", path, Stamp(info))
		}
	}
	return out.String()
}

// Stamp returns a string that changes when a file is replaced or written.
func Stamp(info os.FileInfo) string {
	inode := uint64(0)
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = st.Ino
	}
	return fmt.Sprintf("%d:%d:%d", inode, info.Size(), info.ModTime().UnixNano())
}
