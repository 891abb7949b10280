package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/spec"
)

// maxGroups is the kernel's limit on supplementary groups, NGROUPS_MAX.
const maxGroups = 65536

// LookupUser returns the user of a container's process. The security context's run_as_user or run_as_username takes
// precedence over imageUser, the image's USER: "", name, uid, name:group, uid:gid or a mixture. Names are looked up in
// etc/passwd and etc/group of the root filesystem, which are hostile: see accountLimit and parseID.
//
// The group is run_as_group, else that of USER if USER was chosen, else the account's, else 0. Groups holds the group
// itself, the groups in etc/group that the account is a member of unless the policy is Strict, and supplemental_groups.
// Errors wrap ErrInvalidArgument.
func LookupUser(rootfs, imageUser string, sc *cri.LinuxContainerSecurityContext) (spec.User, error) {
	user, grp, err := requestedUser(imageUser, sc)
	if err != nil {
		return spec.User{}, err
	}
	a, err := lookupAccount(rootfs, user)
	if err != nil {
		return spec.User{}, err
	}
	u := spec.User{UID: a.uid, GID: a.gid, Home: a.home}
	if grp != "" {
		if u.GID, err = lookupGroup(rootfs, grp); err != nil {
			return spec.User{}, err
		}
	}
	if sc.GetRunAsGroup() != nil {
		if u.GID, err = spec.ID(sc.GetRunAsGroup().GetValue()); err != nil {
			return spec.User{}, fmt.Errorf("run_as_group: %w", err)
		}
	}
	u.Groups, err = groups(rootfs, u.GID, a.name, sc)
	return u, err
}

const passwdFile = "/etc/passwd"

// Home returns the home directory of the user in the passwd file that a mount brings, "" if it has no such account or
// cannot be read, and u.Home if no mount has the file: the process sees that of the mount.
func (r *Resolver) Home(ctx context.Context, u spec.User, mounts []spec.Mount) (string, error) {
	root, path := "", "/passwd"
	for _, m := range mounts {
		switch filepath.Clean(m.Config.GetContainerPath()) {
		case passwdFile: // it is mounted over the directory, whatever their order
			root, path = filepath.Split(m.Source)
		case filepath.Dir(passwdFile):
			root = cmp.Or(root, m.Source)
		}
	}
	if root == "" {
		return u.Home, nil
	}
	return within(ctx, r, func(at func(path string) error) (string, error) {
		if err := at(filepath.Join(root, path)); err != nil {
			return "", err
		}
		found, _ := findAccount(root, path, func(a account) bool { return a.uid == u.UID })
		if found == nil {
			return "", nil
		}
		return found.home, nil
	})
}

// requestedUser returns user and group as text. If the security context names a user the image's group is not used.
func requestedUser(imageUser string, sc *cri.LinuxContainerSecurityContext) (user, grp string, err error) {
	uid, name := sc.GetRunAsUser(), sc.GetRunAsUsername()
	switch {
	case uid != nil && name != "":
		return "", "", invalid("run_as_user and run_as_username are both set")
	case sc.GetRunAsGroup() != nil && uid == nil && name == "":
		return "", "", invalid("run_as_group needs run_as_user or run_as_username")
	case uid != nil:
		id, err := spec.ID(uid.GetValue())
		if err != nil {
			return "", "", fmt.Errorf("run_as_user: %w", err)
		}
		return fmt.Sprint(id), "", nil
	case name != "":
		return name, "", nil
	}
	user, grp, _ = strings.Cut(imageUser, ":")
	if user == "" {
		user = "0"
	}
	return user, grp, nil
}

// lookupAccount finds an account by id or name. An id needs no account; a name does.
func lookupAccount(rootfs, user string) (account, error) {
	uid, err := parseID(user)
	byName := errors.Is(err, errNotNumber)
	if err != nil && !byName {
		return account{}, fmt.Errorf("user: %w", err)
	}
	if err := checkName(user); err != nil {
		return account{}, err
	}
	found, err := findAccount(rootfs, passwdFile, func(a account) bool {
		return byName && a.name == user || !byName && a.uid == uid
	})
	switch {
	case err != nil:
		return account{}, err
	case found != nil:
		return *found, nil
	case byName:
		return account{}, invalid("the image has no user %q in its /etc/passwd", user)
	}
	return account{uid: uid}, nil
}

// checkName refuses names that no line of passwd can have: error messages and logs include them.
func checkName(name string) error {
	if strings.ContainsAny(name, ":\n\x00") {
		return invalid("%q is not the name of a user or group", name)
	}
	return nil
}

func lookupGroup(rootfs, name string) (uint32, error) {
	gid, err := parseID(name)
	if err == nil {
		return gid, nil
	}
	if !errors.Is(err, errNotNumber) {
		return 0, fmt.Errorf("group: %w", err)
	}
	if err := checkName(name); err != nil {
		return 0, err
	}
	found := false
	err = eachGroup(rootfs, func(g group) bool {
		if g.name == name {
			gid, found = g.gid, true
		}
		return !found
	})
	if err == nil && !found {
		err = invalid("the image has no group %q in its /etc/group", name)
	}
	return gid, err
}

// groups returns the supplementary groups, each once. KEP-3619 has the two policies.
func groups(rootfs string, gid uint32, name string, sc *cri.LinuxContainerSecurityContext) ([]uint32, error) {
	list, has := []uint32{gid}, map[uint32]bool{gid: true}
	add := func(g uint32) {
		if !has[g] {
			has[g] = true
			list = append(list, g)
		}
	}
	switch sc.GetSupplementalGroupsPolicy() {
	case cri.SupplementalGroupsPolicy_Strict:
	case cri.SupplementalGroupsPolicy_Merge:
		if err := memberships(rootfs, name, add); err != nil {
			return nil, err
		}
	default:
		return nil, invalid("unknown supplemental_groups_policy %v", sc.GetSupplementalGroupsPolicy())
	}
	for _, g := range sc.GetSupplementalGroups() {
		id, err := spec.ID(g)
		if err != nil {
			return nil, fmt.Errorf("supplemental_groups: %w", err)
		}
		add(id)
	}
	if len(list) > maxGroups {
		return nil, invalid("%d supplementary groups are more than the kernel's %d", len(list), maxGroups)
	}
	return list, nil
}

// memberships calls add for the groups that the image gives the account; an id without an account has none.
func memberships(rootfs, name string, add func(uint32)) error {
	if name == "" {
		return nil
	}
	return eachGroup(rootfs, func(g group) bool {
		if slices.Contains(g.members, name) {
			add(g.gid)
		}
		return true
	})
}
