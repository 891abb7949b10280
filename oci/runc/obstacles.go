package runc

import (
	"context"

	"github.com/podd-project/podd/oci/runc/obstacle"
)

// Obstacles implements oci.Dumper. A container that does not run has none.
func (r *Runtime) Obstacles(ctx context.Context, ids []string) (why []string) {
	for i, id := range ids {
		b, err := r.bundle(id)
		if err != nil {
			continue
		}
		rec, err := checkRunning(b)
		if err != nil {
			continue
		}
		why = append(why, obstacle.Find(ctx, rec.Init.Pid)...)
		if i == 0 && len(ids) > 1 && obstacle.HasIPC(rec.Init.Pid) {
			why = append(why, severalIPC)
		}
	}
	return why
}
