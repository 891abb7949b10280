package integration

import (
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestVMFigures logs the figures of pods in virtual machines for test/bench/RESULTS.md: the time of each stage of the
// first container, CPU time and memory of a pod at rest, and the speed of a volume. Only a soak run takes the time.
func TestVMFigures(t *testing.T) {
	if !soaking() {
		t.Skip("it proves nothing that other tests do not: set SOAK=1 for the figures")
	}
	k := start(t)
	k.have(busybox)
	f := vmFigures{kubelet: k, times: map[string][]time.Duration{}}
	for range 5 {
		f.measurePod()
	}
	f.volume = t.TempDir()
	pod := f.measurePod()
	time.Sleep(5 * time.Second) // what runs after the start has ended
	f.measureRest()
	f.measureVolume(pod)
	for _, stage := range f.stages {
		all := f.times[stage]
		slices.Sort(all)
		t.Logf("%-16s p50 %4d ms, fastest %4d ms", stage, all[len(all)/2].Milliseconds(), all[0].Milliseconds())
	}
}

// vmFigures are durations by stage; stages has them in order. volume is a directory for the pods to come.
type vmFigures struct {
	*kubelet
	stages []string
	times  map[string][]time.Duration
	volume string
}

func (f *vmFigures) add(stage string, d time.Duration) {
	if f.times[stage] == nil {
		f.stages = append(f.stages, stage)
	}
	f.times[stage] = append(f.times[stage], d)
}

// timed adds the duration of a call.
func (f *vmFigures) timed(stage string, call func()) {
	began := time.Now()
	call()
	f.add(stage, time.Since(began))
}

// booted are the durations in the shim's log: of the start of the monitor, of the kernel until the agent answers, and
// of what the agent sets up.
var booted = regexp.MustCompile(`kernel=(\S+) .*monitor=(\S+) .*setup=(\S+)`)

// measurePod runs a pod with one container, which it returns.
func (f *vmFigures) measurePod() (ctr string) {
	cfg := f.podConfig()
	var pod string
	f.timed("RunPodSandbox", func() { pod = f.runPod(cfg, vmHandler()) })
	log, err := os.ReadFile(f.Path("run", "containers", pod, "log"))
	f.ok("read the shim's log", err)
	m := booted.FindSubmatch(log)
	if m == nil {
		f.Fatalf("the shim's log has no line of the boot:\n%s", log)
	}
	for i, stage := range []string{"  kernel", "  monitor", "  setup"} {
		d, err := time.ParseDuration(string(m[i+1]))
		f.ok("duration of the boot", err)
		f.add(stage, d)
	}
	mount := func(c *cri.ContainerConfig) {
		if f.volume != "" {
			c.Mounts = append(c.Mounts, &cri.Mount{HostPath: f.volume, ContainerPath: "/data"})
		}
	}
	f.timed("CreateContainer", func() {
		ctr = f.create(pod, f.containerConfig([]string{"sleep", "10000"}, mount), cfg)
	})
	f.timed("StartContainer", func() { f.startContainer(ctr) })
	f.timed("ExecSync", func() { f.exec(ctr, "true") })
	if f.volume == "" {
		f.timed("StopPodSandbox", func() { f.stopPod(pod) })
		f.removePod(pod)
	}
	return ctr
}

// measureVolume writes and reads a volume of the host.
func (f *vmFigures) measureVolume(ctr string) {
	f.timed("write 64 MiB", func() { f.exec(ctr, "dd if=/dev/zero of=/data/x bs=1M count=64 conv=fsync") })
	f.timed("read 64 MiB", func() { f.exec(ctr, "dd if=/data/x of=/dev/null bs=1M") })
	f.timed("200 small files", func() {
		f.exec(ctr, "i=0; while [ $i -lt 200 ]; do echo $i >/data/$i; i=$((i+1)); done; rm /data/*")
	})
}

// measureRest logs the memory of the machines, and the CPU time that they use while nothing is done.
func (f *vmFigures) measureRest() {
	const rest = 10 * time.Second
	ticks := func() (sum int) {
		for _, n := range f.machineProcesses() {
			sum += n
		}
		return sum
	}
	before := ticks()
	time.Sleep(rest)
	const perSecond = 100 // of clock ticks on Linux (sysconf(3), _SC_CLK_TCK)
	used := float64(ticks()-before) / perSecond / rest.Seconds()
	f.Logf("one pod at rest: %.1f %% of a core, %d MiB of memory", used*100, f.machineMemory()>>20)
}
