package host

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// CDI injects devices of the Container Device Interface
// (https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md). Safe for concurrent use. On nil a
// request for devices is an error.
type CDI struct {
	cache *cdi.Cache
	dirs  []string
}

// NewCDI reads specifications from dirs; later ones take precedence. Directories may be absent.
func NewCDI(dirs []string) (*CDI, error) {
	// Without the library's watcher: the directories are read when a container requests a device.
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, fmt.Errorf("CDI: %w", err)
	}
	return &CDI{cache: cache, dirs: dirs}, nil
}

// Inject adds the devices to s, each once in a call: kubelets may name one several times, and its hooks must not run
// again. s is unchanged on error. ErrNotFound means that no specification has a device.
func (c *CDI) Inject(s *specs.Spec, names []string) error {
	if len(names) == 0 {
		return nil
	}
	if c == nil {
		return unsupported("CDI devices %q are requested, podd was started without CDI", names)
	}
	// A specification that cannot be read affects only its own devices; the error below reports it if one is missing.
	refreshed := c.cache.Refresh()
	var once []string
	for _, n := range names {
		if !slices.Contains(once, n) {
			once = append(once, n)
		}
	}
	missing, err := c.cache.InjectDevices(s, once...)
	if len(missing) > 0 {
		why := ""
		if refreshed != nil {
			why = "; not all specifications could be read: " + refreshed.Error()
		}
		return fmt.Errorf("%w: no CDI specification in %s has the devices %s%s",
			errdefs.ErrNotFound, strings.Join(c.dirs, ", "), strings.Join(missing, ", "), why)
	}
	if err != nil {
		return fmt.Errorf("inject CDI devices %s: %w", strings.Join(names, ", "), err)
	}
	return nil
}

// CDIDevices returns the devices that a container requests: by the field CDI_devices, and by annotations
// "cdi.k8s.io/...", which CDI defines for device plugins of kubelets before 1.28.
func CDIDevices(config *cri.ContainerConfig) ([]string, error) {
	var names []string
	for _, d := range config.GetCDIDevices() {
		names = append(names, d.GetName())
	}
	_, annotated, err := cdi.ParseAnnotations(config.GetAnnotations())
	if err != nil {
		return nil, invalid("CDI annotations: %v", err)
	}
	return append(names, annotated...), nil
}
