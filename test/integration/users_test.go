package integration

import (
	"strconv"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestUsers checks the uid, gid and groups of a container's process for combinations of image, request and supplemental
// groups, in the kernel and in the status.
func TestUsers(t *testing.T) {
	t.Parallel()
	k := start(t).sub(t)
	const group = "gcr.io/k8s-staging-cri-tools/test-image-predefined-group:latest" // USER 1000, member of 50000
	const named = "docker.io/podd/named-user:latest"                                // USER www-data:nogroup
	k.have(group)
	k.have(named)
	strict, merge := cri.SupplementalGroupsPolicy_Strict, cri.SupplementalGroupsPolicy_Merge
	pod, podCfg := k.pod()
	for _, c := range []struct {
		name, image string
		mod         func(*cri.LinuxContainerSecurityContext)
		uid, gid    int64
		groups      []int64
	}{
		{"nothing said", busybox, nil, 0, 0, []int64{0}},
		{"uid", busybox, func(s *cri.LinuxContainerSecurityContext) { s.RunAsUser = &cri.Int64Value{Value: 33} }, 33, 33,
			[]int64{33}},
		{"uid that is nobody's", busybox,
			func(s *cri.LinuxContainerSecurityContext) { s.RunAsUser = &cri.Int64Value{Value: 4242} }, 4242, 0, []int64{0}},
		{"uid and gid", busybox, func(s *cri.LinuxContainerSecurityContext) {
			s.RunAsUser, s.RunAsGroup = &cri.Int64Value{Value: 4242}, &cri.Int64Value{Value: 2424}
		}, 4242, 2424, []int64{2424}},
		{"name", busybox, func(s *cri.LinuxContainerSecurityContext) { s.RunAsUsername = "www-data" }, 33, 33, []int64{33}},
		{"the image's names", named, nil, 33, 65534, []int64{65534}},
		{"supplemental", busybox, func(s *cri.LinuxContainerSecurityContext) {
			s.RunAsUser, s.SupplementalGroups = &cri.Int64Value{Value: 33}, []int64{7, 8}
		}, 33, 33, []int64{33, 7, 8}},
		{"merged with the image's", group, func(s *cri.LinuxContainerSecurityContext) {
			s.SupplementalGroups, s.SupplementalGroupsPolicy = []int64{7}, merge
		}, 1000, 1000, []int64{1000, 7, 50000}},
		{"strictly those of the request", group, func(s *cri.LinuxContainerSecurityContext) {
			s.SupplementalGroups, s.SupplementalGroupsPolicy = []int64{7}, strict
		}, 1000, 1000, []int64{1000, 7}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := *k
			k.TB = t
			id, _ := k.runIn(pod, podCfg, []string{"sleep", "1000"}, func(cfg *cri.ContainerConfig) {
				cfg.Image = &cri.ImageSpec{Image: c.image}
				if c.mod != nil {
					c.mod(cfg.Linux.SecurityContext)
				}
			})
			want := ids(c.uid) + ids(c.gid) + ids(c.groups...)
			if got := k.exec(id, "id -u; id -g; id -G"); !sameGroups(got, want) {
				t.Errorf("output of id = %q, want %q", got, want)
			}
			user := k.container(id).GetUser().GetLinux()
			if user.GetUid() != c.uid || user.GetGid() != c.gid || !sameNumbers(user.GetSupplementalGroups(), c.groups) {
				t.Errorf("user in the status = %v, want %d:%d %v", user, c.uid, c.gid, c.groups)
			}
			k.removeContainer(id)
		})
	}
}

// ids returns a line of numbers as id prints it.
func ids(list ...int64) string {
	line := ""
	for i, n := range list {
		if i > 0 {
			line += " "
		}
		line += strconv.FormatInt(n, 10)
	}
	return line + "\n"
}

// sameGroups compares two outputs of id -u, -g, -G, ignoring the order of groups.
func sameGroups(a, b string) bool {
	la, lb := strings.Split(a, "\n"), strings.Split(b, "\n")
	if len(la) != len(lb) || len(la) < 3 {
		return false
	}
	return la[0] == lb[0] && la[1] == lb[1] && sameSet(strings.Fields(la[2]), strings.Fields(lb[2]))
}

func sameNumbers(a, b []int64) bool {
	return sameSet(strings.Fields(ids(a...)), strings.Fields(ids(b...)))
}
