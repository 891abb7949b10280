package sandbox

import "context"

// ReopenLog makes the monitor write to a new file at the log path, after the kubelet has moved the old one away.
func (e *Engine) ReopenLog(ctx context.Context, id string) error {
	c, rt, err := e.running(id)
	if err != nil {
		return err
	}
	return rt.ReopenLog(ctx, c.ID)
}
