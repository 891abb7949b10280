package shim

import (
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/podd-project/podd/oci/vm/vmm"
)

// unusable returns why no pod can run with these options on this machine, and what helps.
func (o Options) unusable() error {
	if o.Driver != vmm.QEMU || o.Kernel != kernelOfImage {
		if _, err := imageFiles(o); err != nil {
			return err
		}
	}
	if o.Driver != vmm.QEMU {
		return nil
	}
	if err := vmm.CheckPrograms(); err != nil {
		return err
	}
	if o.useKVM() {
		return vmm.CheckKVM()
	}
	return nil
}

// emulated is the warning for machines without KVM.
const emulated = "virtual machines are emulated: without KVM they are slow, and no wall against hostile code"

// warning tells the administrator about pods with these options, "" if nothing.
func (o Options) warning() string {
	if o.Driver == vmm.QEMU && !o.useKVM() {
		return emulated
	}
	return ""
}

// Annotations of the answer to containerd's info action, which podd reports as the state of its handler.
const (
	annotationUnusable = "podd.unusable"
	annotationWarning  = "podd.warning"
)

// Describe returns the annotations for the options of a handler, a message of type Any as containerd sends it.
func Describe(options []byte) map[string]string {
	o, err := parseAnyOptions(options)
	if err == nil {
		err = o.unusable()
	}
	annotations := map[string]string{}
	if err != nil {
		annotations[annotationUnusable] = err.Error()
		return annotations
	}
	if w := o.warning(); w != "" {
		annotations[annotationWarning] = w
	}
	return annotations
}

// parseAnyOptions decodes options; without bytes there are none.
func parseAnyOptions(data []byte) (Options, error) {
	if len(data) == 0 {
		return parseOptions(nil)
	}
	any := &anypb.Any{}
	if err := unmarshal(data, any); err != nil {
		return Options{}, invalid("options: %v", err)
	}
	return parseOptions(any)
}
