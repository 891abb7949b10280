package host

import (
	"fmt"
	"os"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/intel/goresctrl/pkg/blockio"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// blockIO serialises the library, which has one configuration in a variable.
var blockIO sync.Mutex

// BlockIO returns the weights and limits of a class for the block devices that the node has now. The file is in the
// format of goresctrl, like containerd's and CRI-O's blockio_config_file.
//
// Errors: errdefs.ErrFailedPrecondition without a right file, errdefs.ErrInvalidArgument for an unknown class.
func BlockIO(file, class string) (*specs.LinuxBlockIO, error) {
	if file == "" {
		return nil, fmt.Errorf("%w: block I/O class %.80q needs runtime.blockio_config_file",
			errdefs.ErrFailedPrecondition, class)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: runtime.blockio_config_file: %w", errdefs.ErrFailedPrecondition, err)
	}
	blockIO.Lock()
	defer blockIO.Unlock()
	if err := blockio.SetConfigFromData(data, false); err != nil {
		return nil, fmt.Errorf("%w: runtime.blockio_config_file %s: %w", errdefs.ErrFailedPrecondition, file, err)
	}
	out, err := blockio.OciLinuxBlockIO(class)
	if err != nil {
		return nil, fmt.Errorf("%w: runtime.blockio_config_file %s has no class %.80q",
			errdefs.ErrInvalidArgument, file, class)
	}
	return out, nil
}

// CheckBlockIO reports a file that BlockIO cannot use; "" for none is right.
func CheckBlockIO(file string) error {
	if file == "" {
		return nil
	}
	_, err := BlockIO(file, "")
	if errdefs.IsInvalidArgument(err) { // no class has that name
		return nil
	}
	return err
}

// BlockIOOf returns the weights and limits of the class that annotations of a pod give to a container, by the names in
// goresctrl; nil without a class, or without a file.
func BlockIOOf(file string, pod *cri.PodSandboxConfig, c *cri.ContainerConfig) (*specs.LinuxBlockIO, error) {
	name := c.GetMetadata().GetName()
	class, err := blockio.ContainerClassFromAnnotations(name, c.GetAnnotations(), pod.GetAnnotations())
	if err != nil || class == "" || file == "" {
		return nil, err
	}
	return BlockIO(file, class)
}
