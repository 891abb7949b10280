package spec

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// elsewhere lists the fields that have no effect on config.json, and what handles them.
func elsewhere() map[protoreflect.FullName]string {
	return map[protoreflect.FullName]string{
		"runtime.v1.ContainerConfig.image":       "the engine resolves it to Input.Image and Input.Rootfs",
		"runtime.v1.ContainerConfig.log_path":    "the monitor's, see package logfile",
		"runtime.v1.ContainerConfig.stdin_once":  "the monitor's",
		"runtime.v1.ContainerConfig.stop_signal": "the engine's",
		"runtime.v1.ContainerConfig.windows":     "refused, see TestContainerErrors",
		"runtime.v1.ContainerConfig.CDI_devices": "injected afterwards by host.CDI",

		"runtime.v1.NamespaceOption.target_id":      "the engine resolves it to Input.Namespaces.PID",
		"runtime.v1.UserNamespace.uids":             "the engine passes them in Input.Namespaces",
		"runtime.v1.UserNamespace.gids":             "the engine passes them in Input.Namespaces",
		"runtime.v1.SELinuxOption.user":             "host.Labels converts it to Input.Labels",
		"runtime.v1.SELinuxOption.role":             "host.Labels converts it to Input.Labels",
		"runtime.v1.SELinuxOption.type":             "host.Labels converts it to Input.Labels",
		"runtime.v1.ImageSpec.annotations":          "image volumes are the image store's",
		"runtime.v1.ImageSpec.user_specified_image": "image volumes are the image store's",
		"runtime.v1.ImageSpec.runtime_handler":      "image volumes are the image store's",
		"runtime.v1.ImageSpec.image_ref":            "image volumes are the image store's",
	}
}

// TestEveryField walks the CRI's messages: a field that a newer cri-api adds needs a golden case, or an entry above
// that says what handles it.
func TestEveryField(t *testing.T) {
	seen := map[protoreflect.FullName]bool{}
	for _, in := range goldens(t) {
		mark(in.Config.ProtoReflect(), seen)
	}
	known := elsewhere()
	for _, m := range []proto.Message{
		&cri.ContainerConfig{}, &cri.LinuxContainerConfig{}, &cri.LinuxContainerSecurityContext{},
		&cri.LinuxContainerResources{}, &cri.Mount{}, &cri.Device{}, &cri.KeyValue{}, &cri.Capability{},
		&cri.NamespaceOption{}, &cri.UserNamespace{},
		&cri.SecurityProfile{}, &cri.SELinuxOption{}, &cri.HugepageLimit{}, &cri.IDMapping{}, &cri.ImageSpec{},
	} {
		fields := m.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			name := fields.Get(i).FullName()
			_, handled := known[name]
			delete(known, name)
			if !seen[name] && !handled {
				t.Errorf("%s is set in no testdata/*.cri.json and is not listed as handled elsewhere", name)
			}
		}
	}
	for name := range known {
		t.Errorf("%s is listed and does not exist", name)
	}
}

// mark notes every field that is set in m or below.
func mark(m protoreflect.Message, seen map[protoreflect.FullName]bool) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		seen[f.FullName()] = true
		switch {
		case f.IsMap():
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				mark(v.List().Get(i).Message(), seen)
			}
		case f.Message() != nil && !f.IsList():
			mark(v.Message(), seen)
		}
		return true
	})
}
