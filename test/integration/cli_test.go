package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
)

// podd runs podd's command line with the daemon's configuration.
func (k *kubelet) podd(args ...string) (stdout, stderr string, code int) {
	k.Helper()
	return k.poddWith(nil, args...)
}

// poddWith is podd with standard input; without any it is empty.
func (k *kubelet) poddWith(stdin io.Reader, args ...string) (stdout, stderr string, code int) {
	k.Helper()
	cmd := exec.Command(poddBinary, append([]string{"--config", k.Path("podd.toml")}, args...)...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		k.Fatalf("podd %v: %v", args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// poddJSON runs podd with -o json and decodes the output. It fails the test unless the exit status is code.
func (k *kubelet) poddJSON(to any, code int, args ...string) {
	k.Helper()
	out, errs, got := k.podd(append(args, "-o", "json")...)
	if got != code {
		k.Fatalf("podd %v: exit status = %d, want %d\n%s%s", args, got, code, out, errs)
	}
	if err := json.Unmarshal([]byte(out), to); err != nil {
		k.Fatalf("podd %v: %v\n%s", args, err, out)
	}
}

type operation struct {
	Verb, Pod, Took string
	Stages          []struct{ Name, After, Took string }
}

type nodeStatus struct {
	Operations []operation
	Troubles   []struct{ What, ID string }
	Pods       []struct {
		ID, Name, State string
		Operations      []operation
		Containers      []struct {
			ID, Name, State string
			Operations      []operation
		}
	}
}

func TestStatusCommand(t *testing.T) {
	t.Parallel()
	k := startWith(t, daemon.Options{Gated: true})
	pod, container := k.sleeper()
	var s nodeStatus
	k.poddJSON(&s, 0, "status", pod[:12])
	if len(s.Pods) != 1 || s.Pods[0].ID != pod || s.Pods[0].State != "ready" || len(s.Pods[0].Containers) != 1 ||
		s.Pods[0].Containers[0].ID != container {
		t.Fatalf("status = %+v, want pod %s, ready, with container %s", s, pod, container)
	}
	stages := func(ops []operation, verb string) (names []string) {
		for _, o := range ops {
			for _, one := range o.Stages {
				if o.Verb == verb {
					names = append(names, one.Name)
				}
			}
		}
		return names
	}
	if got := stages(s.Pods[0].Operations, "RunPodSandbox"); !slices.Contains(got, "network") {
		t.Errorf("stages of RunPodSandbox = %v, want network among them", got)
	}
	if got := stages(s.Pods[0].Containers[0].Operations, "CreateContainer"); !slices.Contains(got, "rootfs") {
		t.Errorf("stages of CreateContainer = %v, want rootfs among them", got)
	}
	// Another pod hangs in CNI ADD: the status has it with its stage, and it is logged.
	k.ok("hold CNI", k.Gates.Hold("bridge-ADD", "K8S_POD_NAME="))
	cfg := k.podConfig()
	k.ok("make the pod's log directory", os.MkdirAll(cfg.LogDirectory, 0o755))
	made := make(chan error, 1)
	go func() {
		_, err := k.Runtime.RunPodSandbox(k.ctx(), &cri.RunPodSandboxRequest{Config: cfg})
		made <- err
	}()
	k.eventually("the status has the hanging operation", func() bool {
		s = nodeStatus{}
		k.poddJSON(&s, 0, "status")
		return len(s.Operations) == 1 && s.Operations[0].Verb == "RunPodSandbox" &&
			slices.Equal(stages(s.Operations, "RunPodSandbox"), []string{"record", "namespaces", "network"})
	})
	stuck := time.Now()
	k.eventually("the hanging operation is logged", func() bool {
		log := k.LogTail(200)
		return strings.Contains(log, "slow operation") && strings.Contains(log, "stage=network")
	})
	text, _, _ := k.podd("status")
	if !strings.Contains(text, "Operations in progress: 1") || !strings.Contains(text, cfg.Metadata.Name) {
		t.Errorf("status, want one operation in progress, of pod %s:\n%s", cfg.Metadata.Name, text)
	}
	held := time.Since(stuck)
	k.ok("release CNI", k.Gates.Release("bridge-ADD"))
	k.ok("RunPodSandbox", <-made)
	s = nodeStatus{}
	k.poddJSON(&s, 0, "status", k.pods(&cri.PodSandboxFilter{LabelSelector: cfg.Labels})[0].Id)
	for _, o := range s.Pods[0].Operations {
		k.checkStages(o, "network", held)
	}
	text, _, _ = k.podd("status", pod)
	if !strings.Contains(text, "infra container") || !strings.Contains(text, "|#") {
		t.Errorf("status POD, want a chart of the stages:\n%s", text)
	}
	if _, errs, code := k.podd("status", "--run", k.Path("absent")); code != 1 ||
		!strings.Contains(errs, "absent/admin.sock") {
		t.Errorf("status without a daemon: exit status = %d, stderr %q, want 1 and \"absent/admin.sock\"", code, errs)
	}
}

// checkStages fails the test unless the stages of o follow each other, take at least half of its time, and the given
// stage took at least the given time.
func (k *kubelet) checkStages(o operation, stage string, least time.Duration) {
	k.Helper()
	duration := func(text string) time.Duration {
		d, err := time.ParseDuration(text)
		k.ok("parse a duration", err)
		return d
	}
	const rounded = 20 * time.Microsecond // two durations, each rounded to 10
	var end, sum time.Duration
	for _, s := range o.Stages {
		after, took := duration(s.After), duration(s.Took)
		if after < end-rounded {
			k.Errorf("start of stage %s = %v, want at or after %v, the end of the previous stage", s.Name, after, end)
		}
		if s.Name == stage && took < least {
			k.Errorf("duration of stage %s = %v, want at least %v", s.Name, took, least)
		}
		end, sum = after+took, sum+took
	}
	if whole := duration(o.Took); end > whole+rounded || sum < whole/2 {
		k.Errorf("stages end at %v and take %v, want at most %v and at least half of that: %+v", end, sum, whole, o)
	}
}

type findings struct {
	Repaired, Found []struct{ Problem, What, ID, Detail string }
}

func (f findings) kinds() (whats []string) {
	for _, one := range f.Found {
		whats = append(whats, one.Problem+" "+one.What)
	}
	return whats
}

// TestCheckAndWipeCommands makes resources leak under a stopped and a running daemon, runs check --repair, and wipes
// the node.
func TestCheckAndWipeCommands(t *testing.T) {
	t.Parallel()
	k := start(t)
	pod, container := k.sleeper()
	lost, lostContainer := k.sleeper()
	k.checkFindsNothing("of a running daemon")
	k.ok("stop podd", k.Stop())
	k.checkFindsNothing("of a stopped daemon")
	k.repairStopped(lost, lostContainer)

	k.ok("start podd", k.Start(k.ctx()))
	k.exec(container, "true") // the other pod is not affected
	k.checkFindsNothing("of the next daemon")
	k.repairRunning()
	k.wipeAll(pod, container)
}

// checkFindsNothing fails the test if the records and the machine differ.
func (k *kubelet) checkFindsNothing(when string) {
	k.Helper()
	if out, errs, code := k.podd("check"); code != 0 {
		k.Fatalf("check %s: exit status = %d, want 0\n%s%s", when, code, out, errs)
	}
}

// repairStopped removes the record of pod lost, and reserves an address for a pod that does not exist.
func (k *kubelet) repairStopped(lost, lostContainer string) {
	k.Helper()
	k.ok("remove a record", os.RemoveAll(k.Path("root", "pods", lost)))
	unknown := strings.Repeat("ab", 32)
	address := k.freeAddress()
	k.ok("reserve an address", os.WriteFile(address, []byte(unknown+"\r\neth0"), 0o600))
	var f findings
	k.poddJSON(&f, 1, "check")
	want := []string{
		"leak address", "leak address", "leak container", "leak network attachment", "leak network namespace",
		"leak pod directory", "leak root filesystem",
	}
	if got := f.kinds(); !slices.Equal(got, want) {
		k.Errorf("check found %v, want %v", got, want)
	}
	for _, one := range f.Found {
		if one.ID != lost && one.ID != lostContainer && one.ID != unknown {
			k.Errorf("check found %+v, want only ids %s, %s and %s", one, lost, lostContainer, unknown)
		}
	}
	f = findings{}
	k.poddJSON(&f, 0, "check", "--repair")
	if len(f.Found) > 0 || len(f.Repaired) != len(want) {
		k.Errorf("repair: %+v, want %d repaired and nothing found", f, len(want))
	}
	if _, err := os.Stat(address); err == nil {
		k.Errorf("%s exists after the repair, want it removed", address)
	}
	k.checkFindsNothing("after the repair")
}

// repairRunning creates a bundle without a record, which a running daemon must find and remove.
func (k *kubelet) repairRunning() {
	k.Helper()
	k.ok("create a bundle", os.Mkdir(k.Path("run", "containers", strings.Repeat("ab", 32)), 0o700))
	var f findings
	k.poddJSON(&f, 1, "check")
	if got, want := f.kinds(), []string{"leak container"}; !slices.Equal(got, want) {
		k.Errorf("check found %v, want %v", got, want)
	}
	k.poddJSON(&f, 0, "check", "--repair")
}

// wipeAll wipes the node, and checks that nothing of podd is left, and that it starts anew.
func (k *kubelet) wipeAll(pod, container string) {
	k.Helper()
	if _, errs, code := k.podd("wipe", "--yes"); code != 1 || !strings.Contains(errs, "stop it first") {
		k.Errorf("wipe with a running daemon: exit status = %d, stderr %q, want 1 and \"stop it first\"", code, errs)
	}
	k.ok("stop podd", k.Stop())
	null := k.Path("run", "runtimes", "gvisor", "null-netns") // as runsc leaves it
	k.ok("make a directory", os.MkdirAll(filepath.Dir(null), 0o700))
	k.ok("make a mount point", os.WriteFile(null, nil, 0o600))
	k.ok("pin a network namespace", unix.Mount("/proc/self/ns/net", null, "", unix.MS_BIND, ""))
	out, errs, code := k.podd("wipe", "--images")
	if code != 1 || !strings.Contains(errs, "--yes") || !strings.Contains(out, "pod "+pod) ||
		!strings.Contains(out, "container "+container) || !strings.Contains(out, "image ") {
		k.Errorf("wipe without --yes: exit status = %d, want 1; stderr %q\n%s", code, errs, out)
	}
	k.checkFindsNothing("after a wipe without --yes")
	if out, errs, code := k.podd("wipe", "--images", "--yes"); code != 0 {
		k.Errorf("wipe: exit status = %d, want 0\n%s%s", code, out, errs)
	}
	for _, dir := range []string{k.Path("run"), k.Path("root")} {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			k.Errorf("Lstat(%s) after the wipe = %v, want no such file", dir, err)
			_ = unix.Unmount(null, unix.MNT_DETACH)
		}
	}
	k.checkFindsNothing("after the wipe")
	k.ok("start podd", k.Start(k.ctx()))
	if left := k.pods(nil); len(left) > 0 {
		k.Errorf("%d pods are left, want none: %v", len(left), left)
	}
	if r, err := k.Images.ListImages(k.ctx(), &cri.ListImagesRequest{}); err != nil || len(r.Images) > 0 {
		k.Errorf("ListImages() = %v, %v, want none", r, err)
	}
}

// freeAddress returns host-local's file for an address that no pod has.
func (k *kubelet) freeAddress() string {
	k.Helper()
	taken, err := filepath.Glob(k.Path("ips", "*", "10.*.*.*"))
	if err != nil || len(taken) == 0 {
		k.Fatalf("allocated addresses = %v, %v, want at least one", taken, err)
	}
	dir, base := filepath.Split(taken[0])
	for i := 200; i < 250; i++ {
		path := filepath.Join(dir, fmt.Sprintf("%s.%d", base[:strings.LastIndex(base, ".")], i))
		if !slices.Contains(taken, path) {
			return path
		}
	}
	k.Fatalf("allocated addresses = %v, want a free one in .200 to .249", taken)
	return ""
}
