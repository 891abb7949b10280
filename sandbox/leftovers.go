package sandbox

import (
	"context"
	"errors"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox/files"
)

// leftoverMounts lists the ids with mounts in their directories that podd does not make there itself: they block the
// removal of the directory. No other program uses these directories.
func (j *janitor) leftoverMounts() ([]string, error) {
	var ids []string
	var errs []error
	for _, parent := range []string{j.e.paths.Bundles(), j.e.paths.PodRuns(), j.e.paths.PodEtcs()} {
		paths, err := host.MountsBelow(parent)
		errs = append(errs, err)
		for _, p := range paths {
			id, rest, below := strings.Cut(strings.TrimPrefix(p, parent+"/"), "/")
			pins := j.e.paths.Pins(id)
			if below && !files.IsMount(rest) && p != pins.IPC && p != pins.UTS && p != pins.User {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), errors.Join(errs...)
}

func (j *janitor) freeMounts(_ context.Context, id string) error {
	return errors.Join(host.UnmountBelow(j.e.paths.Bundle(id)), host.UnmountBelow(j.e.paths.PodRun(id)),
		host.UnmountBelow(j.e.paths.PodEtc(id)))
}

// containerID returns the id in the name of a container's cgroup with either cgroup driver, "" for another cgroup. All
// containers had the prefix podd before cgroup_prefix could be configured.
func (j *janitor) containerID(cgroup string) string {
	for _, prefix := range []string{j.e.cfg.Load().CgroupPrefix, DefaultConfig().CgroupPrefix, spec.DefaultCgroup} {
		id, ok := strings.CutPrefix(strings.TrimSuffix(cgroup, ".scope"), prefix+"-")
		if ok && containerID.MatchString(id) && (prefix == spec.DefaultCgroup || !host.OtherRuntimeHas(id)) {
			return id
		}
	}
	return ""
}

var containerID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// cgroupsOfPods finds containers' cgroups, by id, in the cgroups that the kubelet has made for recorded pods: those
// belong to this podd. A cgroup that several pods share may hold containers of another podd and is skipped.
func (j *janitor) cgroupsOfPods() (map[string]string, error) {
	records, err := j.loadRecords()
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, p := range records.pods {
		parent := j.e.cfg.Load().podCgroup(p)
		if !namedByUID(p, parent) {
			continue
		}
		names, err := cgroups.Children(parent)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if id := j.containerID(name); id != "" {
				found[id] = path.Join(parent, name)
			}
		}
	}
	return found, nil
}

func (j *janitor) leftoverCgroups() ([]string, error) {
	found, err := j.cgroupsOfPods()
	return slices.Collect(maps.Keys(found)), err
}

func (j *janitor) freeCgroup(ctx context.Context, id string) error {
	found, err := j.cgroupsOfPods()
	if err != nil || found[id] == "" {
		return err
	}
	return cgroups.DirsAt(found[id]).Destroy(ctx)
}
