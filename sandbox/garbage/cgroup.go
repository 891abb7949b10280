package garbage

import (
	"context"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/oci/spec/host"
)

var containerID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// containerID returns the id in the name of a container's cgroup with either cgroup driver, "" for another cgroup. All
// containers had the prefix podd before it could be configured.
func (m *Machine) containerID(cgroup string) string {
	for _, prefix := range append(m.Prefixes(), spec.DefaultCgroup) {
		id, ok := strings.CutPrefix(strings.TrimSuffix(cgroup, ".scope"), prefix+"-")
		if ok && containerID.MatchString(id) && (prefix == spec.DefaultCgroup || !host.OtherRuntimeHas(id)) {
			return id
		}
	}
	return ""
}

// containerCgroups finds containers' cgroups, by id, in those of the pods.
func (m *Machine) containerCgroups() (map[string]string, error) {
	parents, err := m.Cgroups()
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, parent := range parents {
		names, err := cgroups.Children(parent)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if id := m.containerID(name); id != "" {
				found[id] = path.Join(parent, name)
			}
		}
	}
	return found, nil
}

func (m *Machine) cgroups(context.Context) ([]string, error) {
	found, err := m.containerCgroups()
	return slices.Collect(maps.Keys(found)), err
}

func (m *Machine) freeCgroup(ctx context.Context, id string) error {
	found, err := m.containerCgroups()
	if err != nil || found[id] == "" {
		return err
	}
	return cgroups.DirsAt(found[id]).Destroy(ctx)
}
