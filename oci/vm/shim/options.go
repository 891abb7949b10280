package shim

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/errdefs"
	"github.com/pelletier/go-toml/v2"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/podd-project/podd/oci/vm/vmm"
)

// Options are the handler's, in TOML: the table options of the handler in podd's configuration, or the file that
// config_path names. containerd passes its runtime options in the same form. All values are strings.
type Options struct {
	// Driver is vmm.UML or vmm.QEMU.
	Driver string `toml:"driver"`
	// Kernel is "node", for that of Images, or "image": the image of the pod's container is the kernel, a unikernel.
	Kernel string `toml:"kernel"`
	// Images is the directory of guest images, which has a directory for each driver.
	Images string `toml:"images"`
	// Accelerator is "kvm" or "tcg", QEMU's emulation, which is slow and no wall against hostile code. Empty means kvm
	// if /dev/kvm can be opened.
	Accelerator string `toml:"accelerator"`
	// Memory is the machine's own need, in MiB; the RuntimeClass' overhead should cover it. PodMemory is what a
	// pod without a memory limit can use in addition.
	Memory    string `toml:"memory"`
	PodMemory string `toml:"pod_memory"`
}

// Defaults of Options, in MiB.
const (
	defaultMemory    = 160
	defaultPodMemory = 512
	// maxMemory is the largest machine.
	maxMemory = 1 << 20
)

// parseOptions reads the options of a Create request.
func parseOptions(any *anypb.Any) (Options, error) {
	o := Options{}
	if any == nil {
		return o.complete()
	}
	var from runtimeoptions.Options
	if err := any.UnmarshalTo(&from); err != nil {
		// containerd writes the bare name of the message as its URL.
		if any.GetTypeUrl() != string(from.ProtoReflect().Descriptor().FullName()) {
			return o, invalid("options of type %q, want %s", any.GetTypeUrl(), from.ProtoReflect().Descriptor().FullName())
		}
		if err := unmarshal(any.GetValue(), &from); err != nil {
			return o, invalid("options: %v", err)
		}
	}
	text := from.GetConfigBody()
	if len(text) == 0 && from.GetConfigPath() != "" {
		var err error
		if text, err = os.ReadFile(from.GetConfigPath()); err != nil {
			return o, fmt.Errorf("options: %w", err)
		}
	}
	return decodeOptions(text)
}

// decodeOptions parses TOML. An unknown key is an error that names it.
func decodeOptions(text []byte) (Options, error) {
	o := Options{}
	d := toml.NewDecoder(newReader(text)).DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		if strict, ok := errors.AsType[*toml.StrictMissingError](err); ok {
			return o, invalid("options: unknown key: %s", strict.String())
		}
		return o, invalid("options: %v", err)
	}
	return o.complete()
}

// complete checks the options and fills in defaults.
func (o Options) complete() (Options, error) {
	o.Driver = cmp.Or(o.Driver, vmm.QEMU)
	o.Kernel = cmp.Or(o.Kernel, kernelOfNode)
	o.Images = cmp.Or(o.Images, vmm.DefaultImages)
	if o.Driver != vmm.UML && o.Driver != vmm.QEMU {
		return o, invalid("options: driver = %q, want %q or %q", o.Driver, vmm.UML, vmm.QEMU)
	}
	if o.Kernel != kernelOfNode && o.Kernel != kernelOfImage {
		return o, invalid("options: kernel = %q, want %q or %q", o.Kernel, kernelOfNode, kernelOfImage)
	}
	if !slices.Contains([]string{"", acceleratorKVM, acceleratorTCG}, o.Accelerator) {
		return o, invalid("options: accelerator = %q, want %q or %q", o.Accelerator, acceleratorKVM, acceleratorTCG)
	}
	if !filepath.IsAbs(o.Images) {
		return o, invalid("options: images = %q, want an absolute path", o.Images)
	}
	for key, value := range map[string]string{"memory": o.Memory, "pod_memory": o.PodMemory} {
		if _, err := mebibytes(value, 0); err != nil {
			return o, invalid("options: %s = %q, want a number of MiB from 1 to %d", key, value, maxMemory)
		}
	}
	return o, nil
}

// The values of Options.Kernel.
const (
	kernelOfNode  = "node"
	kernelOfImage = "image"
)

// The values of Options.Accelerator.
const (
	acceleratorKVM = "kvm"
	acceleratorTCG = "tcg"
)

// useKVM reports whether QEMU is to use KVM.
func (o Options) useKVM() bool {
	if o.Driver != vmm.QEMU || o.Accelerator != "" {
		return o.Accelerator == acceleratorKVM
	}
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}

func mebibytes(text string, unset int) (int, error) {
	if text == "" {
		return unset, nil
	}
	n, err := strconv.Atoi(text)
	if err == nil && (n < 1 || n > maxMemory) {
		err = strconv.ErrRange
	}
	return n, err
}

// size returns the machine's memory in MiB, for a pod with that limit in bytes; 0 is no limit.
func (o Options) size(limit int64) int {
	base, _ := mebibytes(o.Memory, defaultMemory) // checked
	pod, _ := mebibytes(o.PodMemory, defaultPodMemory)
	if limit > 0 {
		pod = int(min((limit+1<<20-1)>>20, maxMemory))
	}
	return base + pod
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, fmt.Errorf(format, args...))
}
