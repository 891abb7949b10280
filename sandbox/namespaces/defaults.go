package namespaces

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/moby/sys/user"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// CheckDefaultSysctl checks that a key is namespaced. Errors are errdefs.ErrInvalidArgument and name the sysctl.
func CheckDefaultSysctl(key, value string) error {
	return CheckSysctls(Request{Net: "/net", IPC: "/ipc", UTS: "/uts", Sysctls: map[string]string{key: value}})
}

// WithDefaultSysctls returns r with those of defaults that it does not set itself and whose namespace it creates. An
// empty value is left out.
func (r Request) WithDefaultSysctls(defaults map[string]string) Request {
	own := map[string]bool{}
	for key := range r.Sysctls {
		own[sysctlPath(key)] = true
	}
	merged := maps.Clone(r.Sysctls)
	for key, value := range defaults {
		alone := r
		alone.Sysctls = map[string]string{key: value}
		if value == "" || own[sysctlPath(key)] || CheckSysctls(alone) != nil {
			continue
		}
		if merged == nil {
			merged = map[string]string{}
		}
		merged[key] = value
	}
	r.Sysctls = merged
	return r
}

// sysctlPath returns the same for all spellings of a key.
func sysctlPath(key string) string {
	parts, err := splitKey(key)
	if err != nil {
		return key
	}
	return strings.Join(parts, "/")
}

// pingGroupRange is the path of the sysctl whose value is a range of groups.
const pingGroupRange = "net/ipv4/ping_group_range"

// mapPingGroups converts the groups of ping_group_range to those of the host, in whose user namespace they are written.
// The range is narrowed to groups that are mapped: Kubernetes' usual value, "0 2147483647", is larger than any mapping.
// As the kernel compares ids of the host, the result is within one range of those, the longest. A range without a
// mapped group is errdefs.ErrInvalidArgument. A pod without mappings has the groups of podd's user namespace.
func (s sysctl) mapPingGroups(gids []specs.LinuxIDMapping) (sysctl, error) {
	fields := strings.Fields(s.value)
	if strings.Join(s.parts, "/") != pingGroupRange || len(fields) != 2 {
		return s, nil
	}
	low, lowErr := strconv.ParseUint(fields[0], 10, 32)
	high, highErr := strconv.ParseUint(fields[1], 10, 32)
	if lowErr != nil || highErr != nil || low > high {
		return s, nil // for the kernel to refuse, or no group
	}
	if len(gids) == 0 {
		own, err := ownGroups()
		if err != nil {
			return s, err
		}
		gids = own
	}
	var from, length uint64
	for _, m := range joinMappings(gids) {
		first := max(low, uint64(m.ContainerID))
		end := min(high+1, uint64(m.ContainerID)+uint64(m.Size))
		if first < end && end-first > length {
			from, length = uint64(m.HostID)+first-uint64(m.ContainerID), end-first
		}
	}
	if length == 0 {
		return s, invalid("sysctl %q: the user namespace maps none of the groups %d to %d", s.key, low, high)
	}
	s.value = fmt.Sprintf("%d %d", from, from+length-1)
	return s, nil
}

// ownGroups returns the groups of podd's user namespace, mapped to themselves: all there are in the initial one.
var ownGroups = sync.OnceValues(func() ([]specs.LinuxIDMapping, error) {
	mapped, err := user.CurrentProcessGIDMap()
	if err != nil {
		return nil, err
	}
	var out []specs.LinuxIDMapping
	for _, m := range mapped {
		id := uint32(m.ID)
		out = append(out, specs.LinuxIDMapping{ContainerID: id, HostID: id, Size: uint32(m.Count)})
	}
	return out, nil
})

// joinMappings joins mappings that continue each other, inside and on the host.
func joinMappings(in []specs.LinuxIDMapping) []specs.LinuxIDMapping {
	sorted := slices.SortedFunc(slices.Values(in), func(a, b specs.LinuxIDMapping) int {
		return cmp.Compare(a.ContainerID, b.ContainerID)
	})
	var out []specs.LinuxIDMapping
	for _, m := range sorted {
		if n := len(out); n > 0 && out[n-1].ContainerID+out[n-1].Size == m.ContainerID &&
			out[n-1].HostID+out[n-1].Size == m.HostID {
			out[n-1].Size += m.Size
			continue
		}
		out = append(out, m)
	}
	return out
}
