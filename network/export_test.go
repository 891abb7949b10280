package network

import "time"

// SetStatusTimes replaces the interval and the limit of STATUS.
func (c *CNI) SetStatusTimes(interval, timeout time.Duration) {
	c.watching.Lock()
	defer c.watching.Unlock()
	c.stop()
	c.running.Wait()
	c.health.interval, c.health.timeout = interval, timeout
	c.start()
}
