package image

import (
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/podd-project/podd/cmd/config"
)

// Config is what the store needs to know of its node.
type Config struct {
	// Root keeps images, and the root filesystems of containers, across reboots. It is podd's own: no other
	// program may share it. Its parents must be searchable by everyone (o+x) for user namespaces to work.
	Root string `toml:"-"`
	// RunRoot keeps the store's locks, gone after a reboot.
	RunRoot string `toml:"-"`

	// BootID is the kernel's boot id; with another one than the last time, and no end in order, images are verified.
	BootID string `toml:"-"`

	// RegistriesConf is containers-registries.conf(5): mirrors, insecure registries, short names. A missing file is empty.
	RegistriesConf string `toml:"registries_conf" comment:"Mirrors, insecure registries and short names: containers-registries.conf(5). Read at every pull. A missing file counts as empty."`
	// RegistriesConfDir holds drop-ins of the same format.
	RegistriesConfDir string `toml:"registries_conf_dir" comment:"Directory of drop-in files for registries_conf."`
	// Policy is containers-policy.json(5): which signatures an image needs. Without the file every image is accepted.
	Policy string `toml:"policy" comment:"Which signatures images need: containers-policy.json(5). Read at every pull. Without the file every image is accepted."`
	// AuthFile is containers-auth.json(5): credentials for pulls that bring none. Empty: the library's usual
	// places (/run/containers/0/auth.json, ~/.config/containers/auth.json, ~/.docker/config.json).
	AuthFile string `toml:"auth_file" comment:"Credentials for pulls whose request has none: containers-auth.json(5). Empty: the default locations of that manual page."`
	// Pinned are globs of image names that the kubelet must not garbage-collect; * stands for any characters,
	// slashes included. A glob without a tag fits every tag.
	Pinned []string `toml:"pinned_images" comment:"Images that the kubelet must not garbage-collect, by name; * matches any characters, a name without a tag matches every tag."`
	// VariantAnnotations are the keys of PullRequest.Annotations that choose among the images of a list.
	VariantAnnotations []string `toml:"variant_annotations" comment:"Pod annotations that select one of several images for the same platform in an image index: the first image with the same annotations and values is pulled. If there is none, the platform's first image is."`
	// PreloadDir holds images for nodes without a registry: OCI layouts (directories), OCI and docker archives (tar).
	PreloadDir string `toml:"preload_dir" comment:"Directory of images that are loaded at start and pinned: OCI layout directories, OCI or docker archives. It may be missing."`
	// PullProgressTimeout aborts a pull that waits for its registry this long without PullMinRate bytes per
	// second coming in. Zero: never.
	PullProgressTimeout time.Duration `toml:"pull_progress_timeout" comment:"Abort a pull that receives less than pull_min_rate for this long. 0: never."`
	// PullMinRate is what counts as progress, in bytes per second averaged over PullProgressTimeout.
	PullMinRate int64 `toml:"pull_min_rate" comment:"Least progress of a pull, in bytes per second, averaged over pull_progress_timeout. 0: any byte."`
	// PullGrace is how long a pull goes on after its last caller is gone, for the caller to come back.
	PullGrace time.Duration `toml:"pull_grace" comment:"How long a pull continues after its last caller has gone. A restarted kubelet joins it."`
	// MaxParallelDownloads bounds the layers fetched at a time by one pull.
	MaxParallelDownloads int `toml:"max_parallel_downloads" comment:"How many layers one pull downloads at a time."`
	// SyncLayers makes a layer's files durable before the layer is recorded.
	SyncLayers bool `toml:"sync_layers" comment:"Sync a layer's files to disk before recording the layer, so that a power failure leaves no empty files in images."`
	// VolatileRootfs lets containers' root filesystems skip fsync: they do not outlive a reboot anyway.
	VolatileRootfs bool `toml:"volatile_rootfs" comment:"Ignore fsync in the root filesystem of containers (not in volumes). No container outlives a reboot."`
}

// DefaultConfig returns the values for everything that has a sensible one; Root and RunRoot are the caller's.
func DefaultConfig() Config {
	return Config{
		RegistriesConf:       "/etc/containers/registries.conf",
		RegistriesConfDir:    "/etc/containers/registries.conf.d",
		Policy:               "/etc/containers/policy.json",
		PreloadDir:           "/var/lib/podd/preload",
		PullProgressTimeout:  5 * time.Minute,
		PullMinRate:          1024,
		PullGrace:            2 * time.Minute,
		MaxParallelDownloads: 6,
		SyncLayers:           true,
		VolatileRootfs:       true,
	}
}

// Validate reports everything that is wrong with the configuration.
func (c Config) Validate() error {
	var errs []error
	for _, p := range []struct {
		key, path string
		optional  bool
	}{
		{"root", c.Root, false},
		{"run_root", c.RunRoot, false},
		{"registries_conf", c.RegistriesConf, true},
		{"registries_conf_dir", c.RegistriesConfDir, true},
		{"policy", c.Policy, true},
		{"auth_file", c.AuthFile, true},
		{"preload_dir", c.PreloadDir, true},
	} {
		if p.path == "" && p.optional {
			continue
		}
		if !filepath.IsAbs(p.path) {
			errs = append(errs, config.Errorf(p.key, "%q is not an absolute path", p.path))
		}
	}
	if strings.ContainsAny(c.Root, ":,\\\n") {
		errs = append(errs, config.Errorf("root", "%q contains a character that is special in overlay mount options (: , \\ or a newline)", c.Root))
	}
	return errors.Join(append(errs, c.validateNumbers()...)...)
}

func (c Config) validateNumbers() []error {
	var errs []error
	for key, d := range map[string]time.Duration{"pull_progress_timeout": c.PullProgressTimeout, "pull_grace": c.PullGrace} {
		if d < 0 {
			errs = append(errs, config.Errorf(key, "%v is negative", d))
		}
	}
	if c.PullMinRate < 0 {
		errs = append(errs, config.Errorf("pull_min_rate", "%d is negative", c.PullMinRate))
	}
	if c.MaxParallelDownloads < 1 || c.MaxParallelDownloads > 64 {
		errs = append(errs, config.Errorf("max_parallel_downloads", "%d is not within 1 to 64", c.MaxParallelDownloads))
	}
	for _, key := range c.VariantAnnotations {
		if key == "" {
			errs = append(errs, config.Errorf("variant_annotations", "contains an empty name"))
		}
	}
	for _, g := range c.Pinned {
		if strings.Trim(g, "*") == "" {
			errs = append(errs, config.Errorf("pinned_images", "%q would pin every image", g))
		}
	}
	return errs
}
