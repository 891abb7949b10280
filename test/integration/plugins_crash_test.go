package integration

import (
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/podd-project/podd/test/daemon"
)

// TestCrashWithPlugin kills podd while an NRI plugin is asked, and between its answer and what the runtime makes of it.
// The plugin connects again, the kubelet's retry succeeds with the adjustment, and nothing is left.
func TestCrashWithPlugin(t *testing.T) {
	t.Parallel()
	k := startWith(t, daemon.Options{Gated: true, Set: []string{hooksOfRuntime(t)}})
	for i, v := range verbs[:3] {
		t.Run("asked about "+v.name, func(t *testing.T) { crashInPlugin(k.sub(t), i) })
	}
	for _, c := range []crash{
		{1, "conmon-create", 1, daemon.Before, false}, {1, "runc-create", 1, daemon.Before, false},
		{1, "runc-create", 1, daemon.After, false}, {2, "runc-start", 1, daemon.Before, true},
		{2, "runc-start", 1, daemon.After, true},
	} {
		t.Run(string(c.point)+" "+c.call, func(t *testing.T) { crashAfterPlugin(k.sub(t), c) })
	}
}

// newAdjustedLife returns a pod whose container runs only if the plugin's variable is there, once.
func (k *kubelet) newAdjustedLife() *life {
	l := k.newLife()
	l.container.Command = []string{"sh", "-c", `[ "$(env | grep -c ^NRI=kept)" = 1 ] && exec sleep 1000`}
	return l
}

func adjustOnce(*api.Container) *api.ContainerAdjustment {
	a := &api.ContainerAdjustment{}
	a.AddEnv("NRI", "kept")
	return a
}

// crashInPlugin kills podd while the plugin has not answered the nth verb.
func crashInPlugin(k *kubelet, n int) {
	asked, killed := make(chan struct{}), make(chan struct{})
	k.connect(&plugin{create: adjustOnce, noted: func(verb string) {
		if verb == verbs[n].name {
			close(asked)
			<-killed
		}
	}})
	l := k.newAdjustedLife()
	l.upTo(n)
	failed := make(chan error, 1)
	go func() { failed <- verbs[n].do(l, k.ctx()) }()
	<-asked
	k.ok("kill podd", k.Kill9())
	close(killed)
	if err := <-failed; err == nil {
		k.Errorf("%s succeeded although podd was killed in it", verbs[n].name)
	}
	k.ok("start podd", k.Start(k.ctx()))
	k.connect(&plugin{create: adjustOnce})
	l.resume(crash{verb: n})
}

// crashAfterPlugin kills podd at c, after the plugin has answered.
func crashAfterPlugin(k *kubelet, c crash) {
	k.connect(&plugin{create: adjustOnce})
	l := k.newAdjustedLife()
	if c.hooked {
		l.addHooks()
	}
	l.upTo(c.verb)
	k.ok("arm", k.Gates.Arm(c.call, c.nth, c.point))
	_ = verbs[c.verb].do(l, k.ctx()) // fails, because podd is killed in it
	k.eventually("the daemon is dead", func() bool { return !k.Running() })
	if fired, err := k.Gates.Disarm(); err != nil || !fired {
		k.Fatalf("Disarm() = %v, %v, want the daemon killed by the gate", fired, err)
	}
	k.ok("start podd", k.Start(k.ctx()))
	k.connect(&plugin{create: adjustOnce})
	l.resume(c)
}
