package host

import (
	"errors"
	"fmt"

	"github.com/opencontainers/selinux/go-selinux"
	"github.com/opencontainers/selinux/go-selinux/label"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/spec"
)

// Labels chooses the SELinux labels of a pod or container: the requested parts, the policy's defaults for the others,
// and a unique level unless one is requested. Zero if SELinux is off. Release them with ReleaseLabels.
func Labels(o *cri.SELinuxOption) (spec.Labels, error) {
	if !selinux.GetEnabled() {
		return spec.Labels{}, nil
	}
	process, mount, err := label.InitLabels(labelOptions(o))
	if err != nil {
		return spec.Labels{}, invalid("SELinux options: %v", err)
	}
	for _, l := range []string{process, mount} {
		if l == "" {
			continue
		}
		if err := selinux.SecurityCheckContext(l); err != nil {
			selinux.ReleaseLabel(process)
			return spec.Labels{}, invalid("SELinux label %q: %v", l, err)
		}
	}
	return spec.Labels{Process: process, Mount: mount}, nil
}

// ReserveLabels reserves the level of labels that an earlier daemon chose, so that no other pod gets it. Reserving a
// level twice is not an error: the containers of a pod share one.
func ReserveLabels(l spec.Labels) error {
	if l.Process == "" {
		return nil
	}
	if err := selinux.ReserveLabelV2(l.Process); err != nil && !errors.Is(err, selinux.ErrMCSAlreadyExists) {
		return fmt.Errorf("reserve SELinux label %q: %w", l.Process, err)
	}
	return nil
}

// ReleaseLabels frees the level of unused labels.
func ReleaseLabels(l spec.Labels) {
	if l.Process != "" {
		selinux.ReleaseLabel(l.Process)
	}
}

// ShareFiles gives a directory of podd's own, with all that is in it, the label of files that every container may use.
// podd must mount it read-only. Without SELinux, or on a filesystem without labels, it does nothing.
func ShareFiles(dir string) error {
	labels, err := Labels(nil)
	if err != nil {
		return err
	}
	defer ReleaseLabels(labels)
	if err := label.Relabel(dir, labels.Mount, true); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("set the SELinux label of %s: %w", dir, err)
	}
	return nil
}

func labelOptions(o *cri.SELinuxOption) []string {
	var out []string
	for _, part := range []struct{ key, value string }{
		{"user", o.GetUser()}, {"role", o.GetRole()}, {"type", o.GetType()}, {"level", o.GetLevel()},
	} {
		if part.value != "" {
			out = append(out, part.key+":"+part.value)
		}
	}
	return out
}
