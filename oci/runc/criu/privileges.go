package criu

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/capability"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/encoding/protowire"
)

// The fields of core_entry, task_core_entry, thread_core_entry and creds_entry (images/core.proto, images/creds.proto).
const (
	coreTask      protowire.Number = 3
	coreThread    protowire.Number = 5
	taskState     protowire.Number = 1
	threadCreds   protowire.Number = 10
	threadSeccomp protowire.Number = 11

	credsUID             protowire.Number = 1 // then gid, euid, egid, suid, sgid, fsuid, fsgid
	credsFSGID           protowire.Number = 8
	credsCapInheritable  protowire.Number = 9 // then permitted, effective, bounding
	credsCapBounding     protowire.Number = 12
	credsGroups          protowire.Number = 14
	credsLSM             protowire.Number = 15 // then lsm_sockcreate, apparmor_data, the last ones that are not numbers
	credsAppArmor        protowire.Number = 17
	credsNoNewPrivileges protowire.Number = 18
	credsCapAmbient      protowire.Number = 19
)

// seccompFilter is SECCOMP_MODE_FILTER, taskDead CRIU's TASK_DEAD.
const seccompFilter, taskDead = 2, 2

// thread has the privileges that an image gives a thread.
type thread struct {
	uids, gids, groups []uint32
	// capabilities are all that are in one of its sets, bit by bit.
	capabilities    uint64
	noNewPrivileges bool
	seccomp         uint64
	lsm             string
	// known is true if the image has credentials.
	known bool
	// state is that of the process, core true if the image has what only a process that executes something has.
	state uint64
	core  bool
}

// zombie reports whether the image is of a process that has ended, without credentials: CRIU writes none for it, and
// ends it before it executes anything. To any other process without them CRIU would leave its own.
func (t thread) zombie() bool { return t.state == taskDead && !t.core }

// CheckPrivileges returns errdefs.ErrPermissionDenied if the images in dir give a process more than a container with
// this config.json could have: other users, groups or capabilities, no seccomp filter, another profile.
func CheckPrivileges(dir string, s *specs.Spec) error {
	if err := checkDescriptors(dir); err != nil {
		return err
	}
	paths, err := filepath.Glob(filepath.Join(dir, "core-*.img"))
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("no core-*.img: %w", errImage)
	}
	most := privilegesOf(s)
	for _, path := range paths {
		_, messages, err := readImage(path)
		if err != nil {
			return err
		}
		for _, m := range messages {
			t, err := parseThread(m)
			if err == nil {
				err = most.check(t)
			}
			if err != nil {
				return fmt.Errorf("image %s: %w", filepath.Base(path), err)
			}
		}
		if len(messages) != 1 {
			return fmt.Errorf("%s: %w", filepath.Base(path), errImage)
		}
	}
	return nil
}

// parseThread reads a core_entry.
func parseThread(message []byte) (t thread, err error) {
	err = fields(message, func(number protowire.Number, _ uint64, data []byte) error {
		switch number {
		case coreTask:
			return fields(data, func(number protowire.Number, value uint64, _ []byte) error {
				if number == taskState {
					t.state = value
				}
				return nil
			})
		case coreThread:
			t.core = true
			return fields(data, t.parseField)
		}
		return nil
	})
	return t, err
}

// parseField reads a field of a thread_core_entry.
func (t *thread) parseField(number protowire.Number, value uint64, data []byte) error {
	switch number {
	case threadSeccomp:
		t.seccomp = value
	case threadCreds:
		t.known = true
		return t.parseCredentials(data)
	}
	return nil
}

// parseCredentials reads a creds_entry. Protobuf allows a list in two encodings; here it is one number after the other.
func (t *thread) parseCredentials(message []byte) error {
	words := map[protowire.Number]int{} // of each set of capabilities, the lower one first
	return fields(message, func(number protowire.Number, value uint64, data []byte) error {
		switch {
		case data != nil && (number < credsLSM || number > credsAppArmor):
			return errImage
		case number >= credsUID && number <= credsFSGID && (number-credsUID)%2 == 0:
			t.uids = append(t.uids, uint32(value))
		case number > credsUID && number <= credsFSGID:
			t.gids = append(t.gids, uint32(value))
		case number >= credsCapInheritable && number <= credsCapBounding, number == credsCapAmbient:
			if words[number] > 1 {
				return errImage
			}
			t.capabilities |= uint64(uint32(value)) << (32 * words[number])
			words[number]++
		case number == credsGroups:
			t.groups = append(t.groups, uint32(value))
		case number == credsLSM:
			t.lsm = string(data)
		case number == credsNoNewPrivileges:
			t.noNewPrivileges = value != 0
		}
		return nil
	})
}

// privileges are the most that processes of a container can have.
type privileges struct {
	capabilities    uint64
	noNewPrivileges bool
	seccomp         bool
	lsm             string
	// uid and gids are those of the first process. Others are possible only with programs that change them, or if
	// anyUID or anyGID is true.
	uid            uint32
	gids           []uint32
	anyUID, anyGID bool
}

func privilegesOf(s *specs.Spec) privileges {
	p := privileges{seccomp: s.Linux != nil && s.Linux.Seccomp != nil}
	if s.Process == nil {
		return p
	}
	p.noNewPrivileges = s.Process.NoNewPrivileges
	p.uid, p.gids = s.Process.User.UID, append([]uint32{s.Process.User.GID}, s.Process.User.AdditionalGids...)
	p.lsm = s.Process.ApparmorProfile + s.Process.SelinuxLabel // a node has at most one of them
	if c := s.Process.Capabilities; c != nil {
		p.capabilities = bits(slices.Concat(c.Bounding, c.Effective, c.Permitted, c.Inheritable, c.Ambient))
	}
	root := p.uid == 0
	p.anyUID = !p.noNewPrivileges || root && p.capabilities&(1<<capability.CAP_SETUID) != 0
	p.anyGID = !p.noNewPrivileges || root && p.capabilities&(1<<capability.CAP_SETGID) != 0
	return p
}

// bits returns the set of the capabilities with these names.
func bits(names []string) (set uint64) {
	for _, c := range capability.ListKnown() {
		if slices.Contains(names, "CAP_"+strings.ToUpper(c.String())) {
			set |= 1 << c
		}
	}
	return set
}

// check returns errdefs.ErrPermissionDenied, with the excess, for a thread that has more.
func (p privileges) check(t thread) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: the checkpoint gives a process %s, which the container cannot have",
			errdefs.ErrPermissionDenied, fmt.Sprintf(format, args...))
	}
	other := func(allowed []uint32) func(uint32) bool {
		return func(id uint32) bool { return !slices.Contains(allowed, id) }
	}
	switch {
	case t.zombie():
		return nil
	case !t.known || len(t.uids) != 4 || len(t.gids) != 4:
		return errImage
	case t.capabilities&^p.capabilities != 0:
		return refuse("the capabilities %#x", t.capabilities&^p.capabilities)
	case !p.anyUID && slices.ContainsFunc(t.uids, other([]uint32{p.uid})):
		return refuse("the users %v", t.uids)
	case !p.anyGID && slices.ContainsFunc(slices.Concat(t.gids, t.groups), other(p.gids)):
		return refuse("the groups %v", slices.Concat(t.gids, t.groups))
	case p.noNewPrivileges && !t.noNewPrivileges:
		return refuse("no flag no_new_privs")
	case p.seccomp && t.seccomp != seccompFilter:
		return refuse("no seccomp filter")
	case p.lsm != "" && t.lsm != p.lsm:
		return refuse("the security profile %.100q", t.lsm)
	}
	return nil
}
