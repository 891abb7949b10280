package record

import (
	"errors"
	"io/fs"

	"github.com/podd-project/podd/checkpoint"
)

// Status is a PodStatus or a ContainerStatus.
//
// Only the exit of a container is synced: it is nowhere else. What other statuses say ends with the boot, and the death
// of podd alone does not lose them. So after another boot a status may be any earlier one, damaged or absent, in each
// file on its own, and all of these mean the same: the pod is not ready, and the container, which did not exit before,
// has exited, with 255, or with 128 if it is known that its command cannot be run. That includes Creating, after which
// a container may have run, and its pod may have others whose exits are on disk: neither may be discarded, as it is in
// the same boot.
type Status interface {
	// synced reports whether the status must survive a power loss.
	synced() bool
}

func (s PodStatus) synced() bool { return false }

func (s ContainerStatus) synced() bool { return s.State == ContainerExited }

// beforeBoot reports whether p was created before the boot with that id.
func (p Pod) beforeBoot(id string) bool { return p.BootID != id }

// beforeBoot returns the status of a pod that was created before the boot; reading it returned s and err.
func (s PodStatus) beforeBoot(err error) (_ PodStatus, lost, _ error) {
	if isLost(err) {
		return PodStatus{State: PodReady}, err, nil
	}
	if err == nil && s.State == PodCreating {
		s.State = PodReady
	}
	return s, nil, err
}

// beforeBoot is PodStatus.beforeBoot for the container r.
func (s ContainerStatus) beforeBoot(r Container, err error) (_ ContainerStatus, lost, _ error) {
	if isLost(err) {
		return ContainerStatus{State: ContainerCreated, Resources: r.Config.GetLinux().GetResources()}, err, nil
	}
	if err == nil && s.State == ContainerCreating {
		s.State = ContainerCreated
	}
	return s, nil, err
}

// isLost reports whether err, from checkpoint.Read, is the effect of a power loss on a record that is not synced. It
// does not make one of a newer format.
func isLost(err error) bool {
	return errors.Is(err, checkpoint.ErrCorrupt) || errors.Is(err, fs.ErrNotExist)
}
