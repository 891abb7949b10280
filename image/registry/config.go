package registry

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Config has the operator's keys of images. Store.Reconfigure can replace them.
type Config struct {
	// RegistriesConf is containers-registries.conf(5): mirrors, insecure registries, short names. The file may be
	// missing. Drop-ins are in the directory with the same name and ".d".
	RegistriesConf string `toml:"registries_conf" comment:"Mirrors, insecure registries and short names: containers-registries.conf(5). Read at every pull, with the drop-in files in the directory of the same name with .d at its end. A missing file counts as empty."`
	// Policy is containers-policy.json(5): the signatures that an image needs. Without the file every image is
	// accepted.
	Policy string `toml:"policy" comment:"Which signatures images need: containers-policy.json(5). Read at every pull. Without the file every image is accepted."`
	// PolicyRequired makes a missing Policy an error. ForNamespace sets it.
	PolicyRequired bool `toml:"-"`
	// PolicyDir has a policy NAMESPACE.json for each namespace whose pods need another one.
	PolicyDir string `toml:"policy_dir" comment:"Directory of signature policies by namespace: NAMESPACE.json is used instead of policy for the pods of that namespace. With one such file, policies are applied to stored images too when a container is created. Read at every use."`
	// AuthFile is containers-auth.json(5): credentials for pulls without any. Empty: none.
	AuthFile string `toml:"auth_file" comment:"Credentials for pulls whose request has none: containers-auth.json(5). Empty: none; files in the home directory of root are not used."`
	// AuthDir has credentials NAMESPACE.json for pulls of a namespace's pods.
	AuthDir string `toml:"auth_dir" comment:"Directory of credentials by namespace: NAMESPACE.json is used instead of auth_file for the pods of that namespace. Read at every pull."`
	// DecryptionKeysPath is a directory with the private keys of encrypted images. Only the processes of pulls read them.
	DecryptionKeysPath string `toml:"decryption_keys_path" comment:"Directory of private keys for encrypted images: PEM (PKCS8, PKCS1), DER or JWK without password, for PKCS7 with the certificate. Read at every pull of one. Empty: encrypted images are refused."`
	// Pinned are globs of image names that the kubelet must not garbage-collect; * matches any characters, slashes
	// included. A glob without a tag matches every tag.
	Pinned []string `toml:"pinned_images" comment:"Images that the kubelet must not garbage-collect, by name; * matches any characters, a name without a tag matches every tag."`
	// VariantAnnotations are the keys of PullRequest.Annotations that select an image of a list. If none matches, the
	// platform's first image is pulled.
	VariantAnnotations []string `toml:"variant_annotations" comment:"Pod annotations that select one of several images for the same platform in an image index: the first image with the same annotations and values is pulled. If there is none, the platform's first image is."`
	// PreloadDir holds images for nodes without a registry: OCI layouts (directories), OCI and docker archives (tar).
	PreloadDir string `toml:"preload_dir" comment:"Directory of images that are loaded at start and pinned: OCI layout directories, OCI or docker archives. It may be missing."`
	// AdditionalLayerStore is where an additional layer store of containers-storage.conf(5) is mounted, which takes a
	// reference. Layers with a table of contents (eStargz) are then not fetched: it fetches the files that are read.
	AdditionalLayerStore string `toml:"additional_layer_store" comment:"Mount point of an additional layer store with references, e.g. /var/lib/stargz-store/store: the layers of eStargz images are then fetched when containers read them. Containers that read such a layer fail when the store is killed. Empty: none."`
	// PullProgressTimeout aborts a pull that has waited for its registry this long while receiving less than
	// PullMinRate. Zero: never.
	PullProgressTimeout time.Duration `toml:"pull_progress_timeout" comment:"Abort a pull that receives less than pull_min_rate for this long. 0: never."`
	// PullMinRate is the minimum rate of a pull, in bytes per second averaged over PullProgressTimeout.
	PullMinRate int64 `toml:"pull_min_rate" comment:"Least progress of a pull, in bytes per second, averaged over pull_progress_timeout. 0: any byte."`
	// PullGrace is how long a pull continues after its last caller is gone, so that the caller can come back.
	PullGrace time.Duration `toml:"pull_grace" comment:"How long a pull continues after its last caller has gone. A restarted kubelet joins it."`
	// MaxImageBytes bounds the layers of an image, unpacked, in bytes of content.
	MaxImageBytes int64 `toml:"max_image_bytes" comment:"Largest image, unpacked, in bytes, and largest archive of images, uncompressed. A pull or load of a larger one fails."`
	// MaxWritableBytes bounds the writable layer of a container; 0: not.
	MaxWritableBytes int64 `toml:"max_writable_bytes" comment:"Most bytes that a container may write to its root filesystem, in at most one file for each 4 KiB of it, or 1,000. A write above it fails with EDQUOT, on XFS with ENOSPC. The directory root must be on ext4 or XFS with project quotas (mount option prjquota), and Linux 5.14; otherwise no container is created. Processes outside of user namespaces can evade it, by changing the project of their files. gVisor was not tried. 0: no limit."`
	// PullMemory bounds the memory of the process that does a pull, in bytes.
	PullMemory int64 `toml:"pull_memory" comment:"Most memory of the process that a pull runs in, in bytes. A pull that needs more fails. An image compressed with zstd --long needs 128 MiB for each layer in download."`
}

// minPullMemory is enough for layers with common windows.
const minPullMemory = 256 << 20

// Bounds of max_writable_bytes: room for the kernel's own directories, and what quotas can count.
const (
	minWritableBytes = 1 << 20
	maxWritableBytes = 1 << 60
)

// DefaultConfig returns the default values.
func DefaultConfig() Config {
	return Config{
		RegistriesConf:      "/etc/containers/registries.conf",
		Policy:              "/etc/containers/policy.json",
		PolicyDir:           "/etc/podd/policies",
		AuthDir:             "/etc/podd/auth",
		PreloadDir:          "/var/lib/podd/preload",
		PullProgressTimeout: 5 * time.Minute,
		PullMinRate:         1024,
		PullGrace:           2 * time.Minute,
		MaxImageBytes:       64 << 30,
		PullMemory:          1 << 30,
	}
}

// Validate reports each wrong key. It opens no file.
func (c Config) Validate(problem func(key string, err error)) {
	for _, p := range []struct{ key, path string }{
		{"registries_conf", c.RegistriesConf},
		{"policy", c.Policy},
		{"policy_dir", c.PolicyDir},
		{"auth_file", c.AuthFile},
		{"auth_dir", c.AuthDir},
		{"decryption_keys_path", c.DecryptionKeysPath},
		{"preload_dir", c.PreloadDir},
		{"additional_layer_store", c.AdditionalLayerStore},
	} {
		if p.path != "" && !filepath.IsAbs(p.path) {
			problem(p.key, fmt.Errorf("%q is not an absolute path", p.path))
		}
	}
	c.validateNumbers(problem)
}

func (c Config) validateNumbers(problem func(key string, err error)) {
	if c.PullProgressTimeout < 0 {
		problem("pull_progress_timeout", fmt.Errorf("%v is negative", c.PullProgressTimeout))
	}
	if c.PullGrace < 0 {
		problem("pull_grace", fmt.Errorf("%v is negative", c.PullGrace))
	}
	if c.PullMinRate < 0 {
		problem("pull_min_rate", fmt.Errorf("%d is negative", c.PullMinRate))
	}
	if c.MaxImageBytes < 1 {
		problem("max_image_bytes", fmt.Errorf("%d is less than 1", c.MaxImageBytes))
	}
	if n := c.MaxWritableBytes; n != 0 && (n < minWritableBytes || n > maxWritableBytes) {
		problem("max_writable_bytes", fmt.Errorf("%d is neither 0 nor between %d and %d", n, minWritableBytes,
			int64(maxWritableBytes)))
	}
	if c.PullMemory < minPullMemory {
		problem("pull_memory", fmt.Errorf("%d is less than %d", c.PullMemory, minPullMemory))
	}
	for _, key := range c.VariantAnnotations {
		if key == "" {
			problem("variant_annotations", errors.New("contains an empty name"))
		}
	}
	for _, g := range c.Pinned {
		if strings.Trim(g, "*") == "" {
			problem("pinned_images", fmt.Errorf("%q would pin every image", g))
		}
	}
}
