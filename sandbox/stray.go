package sandbox

import (
	"context"
	"errors"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/spec/host"
)

// strayMounts lists the ids with something mounted in their directories that podd does not mount there itself: that would
// keep the directory from being removed. These directories are podd's alone.
func (e *Engine) strayMounts() ([]string, error) {
	var ids []string
	var errs []error
	for _, parent := range []string{filepath.Dir(e.bundleDir("id")), filepath.Dir(e.podRunDir("id"))} {
		paths, err := host.MountsBelow(parent)
		errs = append(errs, err)
		for _, p := range paths {
			id, rest, below := strings.Cut(strings.TrimPrefix(p, parent+"/"), "/")
			pins := e.pins(id)
			if below && rest != shmDir && p != pins.ipc && p != pins.uts && p != pins.user {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), errors.Join(errs...)
}

func (e *Engine) freeMounts(_ context.Context, id string) error {
	return errors.Join(host.UnmountBelow(e.bundleDir(id)), host.UnmountBelow(e.podRunDir(id)))
}

// containerCgroup is the name of a container's cgroup, by either driver.
var containerCgroup = regexp.MustCompile(`^` + cgroupPrefix + `-([0-9a-f]{64})(\.scope)?$`)

// cgroupsOfPods finds containers' cgroups, by id, in the cgroups that the kubelet has made for pods on record: whoever has
// one there is of this podd. In a cgroup that pods share, containers of another podd may be, so it is not looked at.
func (e *Engine) cgroupsOfPods() (map[string]string, error) {
	records, err := e.takeCensus()
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, p := range records.pods {
		parent := e.podCgroupPath(p)
		if !namedByUID(p, parent) {
			continue
		}
		names, err := cgroups.Children(parent)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if m := containerCgroup.FindStringSubmatch(name); m != nil {
				found[m[1]] = path.Join(parent, name)
			}
		}
	}
	return found, nil
}

func (e *Engine) strayCgroups() ([]string, error) {
	found, err := e.cgroupsOfPods()
	return slices.Collect(maps.Keys(found)), err
}

func (e *Engine) freeCgroup(ctx context.Context, id string) error {
	found, err := e.cgroupsOfPods()
	if err != nil || found[id] == "" {
		return err
	}
	return cgroups.DirsAt(found[id]).Destroy(ctx)
}

// Remedy says what a repair does about the finding, "" for nothing.
func (f Finding) Remedy() string {
	if f.Problem != FindingLeak {
		return ""
	}
	return map[string]string{
		whatContainer:  "kill what runs of it, and delete it by its runtime",
		whatCgroup:     "kill the processes in it, and remove it",
		whatMount:      "unmount it",
		whatRootfs:     "unmount and delete it",
		whatAttachment: "detach it by the CNI plugins (DEL)",
		whatNetns:      "unpin it",
		whatPodDir:     "unmount and delete it",
		whatAddress:    "give it back by the CNI plugins (daemon stopped)",
	}[f.What]
}
