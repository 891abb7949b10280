package integration

import (
	"slices"
	"strconv"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// upgradedPods is the number of pods that run across an upgrade and a downgrade.
const upgradedPods = 20

// countLines logs 1, 2, 3 and so on, twenty lines a second.
const countLines = "n=0; while :; do n=$((n+1)); echo $n; sleep 0.05; done"

// countingPod is a pod whose container counts.
type countingPod struct {
	pod, container string
	pid            int
	podCfg         *cri.PodSandboxConfig
	cfg            *cri.ContainerConfig
}

// keepCounting has pods run and log while one daemon replaces the other and is replaced by it again, as packages do it:
// by a stop and a start. No process is started again, and no line of a log is lost.
func keepCounting(k *kubelet, from, to daemonCommand) {
	k.Use(from.binary, from.args...)
	k.ok("start the first daemon", k.Restart(k.ctx(), k.Stop))
	var counting []*countingPod
	for range upgradedPods {
		c := &countingPod{}
		c.pod, c.podCfg = k.pod()
		c.container, c.cfg = k.runIn(c.pod, c.podCfg, []string{"sh", "-c", countLines})
		c.pid = initPid(k, c.container)
		counting = append(counting, c)
	}
	for _, next := range []daemonCommand{to, from} {
		k.ok("stop the daemon", k.Stop())
		stopped := time.Now()
		before := counting[0].last(k)
		k.eventually("containers log without a daemon", func() bool { return counting[0].last(k) > before+5 })
		k.Use(next.binary, next.args...)
		k.ok("start the other daemon", k.Start(k.ctx()))
		k.Logf("%d pods were without a daemon for %v", len(counting), time.Since(stopped))
		for _, c := range counting {
			if pid := initPid(k, c.container); pid != c.pid {
				k.Errorf("pid of container %s = %d, want %d", c.container, pid, c.pid)
			}
			k.exec(c.container, "true")
			n := c.last(k)
			k.eventually("the container goes on to log", func() bool { return c.last(k) > n })
		}
	}
	for _, c := range counting {
		k.stopPod(c.pod)
		if n := c.last(k); n < 20 {
			k.Errorf("container %s has counted to %d, want more", c.container, n)
		}
		k.removePod(c.pod)
	}
	k.Use(poddBinary)
	k.ok("go on with this daemon", k.Restart(k.ctx(), k.Stop))
}

// last returns the last number in the log. It fails the test if one before it is missing or there twice.
func (c *countingPod) last(k *kubelet) int {
	k.Helper()
	lines := k.logLines(c.podCfg, c.cfg)
	if i := slices.IndexFunc(lines, outOfOrder()); i >= 0 {
		k.Fatalf("line %d of the log of container %s is %+v, want %d", i+1, c.container, lines[i], i+1)
	}
	return len(lines)
}

// outOfOrder returns a function that reports whether a line does not have the next number.
func outOfOrder() func(logLine) bool {
	n := 0
	return func(l logLine) bool {
		n++
		return l.text != strconv.Itoa(n)
	}
}
