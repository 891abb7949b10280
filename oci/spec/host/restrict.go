package host

import (
	"context"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Restrict adds the restrictions of each bind mount's source, as the node has mounted it, to the options of the mount:
// a runtime remounts with the options, which lifts the others. A source that is not there is left to the runtime.
// Errors: the context's cause, with the path that hangs.
func (r *Resolver) Restrict(ctx context.Context, s *specs.Spec) error {
	lists, err := within(ctx, r, func(at func(path string) error) ([][]string, error) {
		lists := make([][]string, len(s.Mounts)) // s is changed only if the caller waits for it
		for i, m := range s.Mounts {
			lists[i] = m.Options
			if m.Type != "bind" && !slices.Contains(m.Options, "bind") && !slices.Contains(m.Options, "rbind") {
				continue
			}
			if err := at(m.Source); err != nil {
				return nil, err
			}
			var fs unix.Statfs_t
			if unix.Statfs(m.Source, &fs) == nil {
				lists[i] = restrict(m.Options, fs.Flags)
			}
		}
		return lists, nil
	})
	for i := range lists {
		s.Mounts[i].Options = lists[i]
	}
	return err
}

// restrict returns the options of a mount with the restrictions among the flags, and without what would lift them.
func restrict(options []string, flags int64) []string {
	for _, o := range []struct {
		flag       int64
		name, lift string
	}{
		{unix.ST_RDONLY, "ro", "rw"}, {unix.ST_NOSUID, "nosuid", "suid"}, {unix.ST_NODEV, "nodev", "dev"},
		{unix.ST_NOEXEC, "noexec", "exec"},
	} {
		if flags&o.flag == 0 {
			continue
		}
		options = slices.DeleteFunc(slices.Clone(options), func(have string) bool {
			return have == o.name || have == o.lift || have == "r"+o.lift
		})
		options = append(options, o.name)
	}
	return options
}
