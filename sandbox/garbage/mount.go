package garbage

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox/files"
)

// mounts lists the ids with mounts in their directories that podd does not make there itself: they block the removal of
// the directory. No other program uses these directories.
func (m *Machine) mounts(context.Context) ([]string, error) {
	var ids []string
	var errs []error
	for _, parent := range []string{m.Paths.Bundles(), m.Paths.PodRuns(), m.Paths.PodEtcs()} {
		paths, err := host.MountsBelow(parent)
		errs = append(errs, err)
		for _, p := range paths {
			id, rest, below := strings.Cut(strings.TrimPrefix(p, parent+"/"), "/")
			pins := m.Paths.Pins(id)
			if below && !files.IsMount(rest) && p != pins.IPC && p != pins.UTS && p != pins.User {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), errors.Join(errs...)
}

func (m *Machine) freeMounts(_ context.Context, id string) error {
	return errors.Join(host.UnmountBelow(m.Paths.Bundle(id)), host.UnmountBelow(m.Paths.PodRun(id)),
		host.UnmountBelow(m.Paths.PodEtc(id)))
}
