package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
	"github.com/podd-project/podd/test/sample"
)

// TestLogAbuse has a container that can write to the log directories of all pods, as agents that collect logs often
// can, try to make podd, conmon or a shim's stdio process write to a file of the node (CVE-2025-0750).
func TestLogAbuse(t *testing.T) {
	t.Parallel()
	for _, handler := range sample.Some(t, "runc", "crun", "runc-shim") {
		t.Run(handler, func(t *testing.T) {
			t.Parallel()
			k := startWith(t, daemon.Options{Handler: handler, Set: runcShim()})
			for _, c := range []struct {
				name string
				test func(*logTenant)
			}{
				{"link at the log's directory", (*logTenant).linkDirectory},
				{"link at log_directory", (*logTenant).linkLogDirectory},
				{"plants at the log", (*logTenant).plantLog},
				{"plants at the next log", (*logTenant).plantNext},
				{"races", (*logTenant).race},
			} {
				t.Run(c.name, func(t *testing.T) { c.test(newLogTenant(k.sub(t))) })
			}
		})
	}
}

// logTenant is a container that can write to the log directories, next to one that prints.
type logTenant struct {
	*kubelet
	tenant, writer string
	pod            string
	podCfg         *cri.PodSandboxConfig
	// dir is the directory of the writer's log, log its path.
	dir, log string
	// outside is a directory that no container has, secret a file in it with the text "secret".
	outside, secret string
}

func newLogTenant(k *kubelet) *logTenant {
	k.Helper()
	l := &logTenant{kubelet: k, outside: k.TempDir()}
	l.secret = filepath.Join(l.outside, "secret")
	k.ok("write a file of the node", os.WriteFile(l.secret, []byte("secret"), 0o600))
	l.pod, l.podCfg = k.pod()
	writer, cfg := k.runIn(l.pod, l.podCfg, []string{"sh", "-c", "while :; do echo line; sleep 0.01; done"},
		func(c *cri.ContainerConfig) { c.LogPath = "web/0.log" })
	l.writer, l.log = writer, filepath.Join(l.podCfg.LogDirectory, cfg.LogPath)
	l.dir = filepath.Dir(l.log)
	logs := filepath.Dir(l.podCfg.LogDirectory)
	pod, podCfg := k.pod()
	l.tenant, _ = k.runIn(pod, podCfg, []string{"sleep", "1000"}, func(c *cri.ContainerConfig) {
		c.Mounts = []*cri.Mount{{ContainerPath: logs, HostPath: logs}}
	})
	k.waitLog(l.podCfg, cfg, "line\n")
	return l
}

// reopen calls ReopenContainerLog, which must answer soon whatever it finds.
func (l *logTenant) reopen() error {
	l.Helper()
	begin := time.Now()
	_, err := l.Runtime.ReopenContainerLog(l.ctx(), &cri.ReopenContainerLogRequest{ContainerId: l.writer})
	if took := time.Since(begin); took > 5*time.Second {
		l.Errorf("ReopenContainerLog took %v, want at most 5s", took)
	}
	return err
}

// checkRotation rotates the log as the kubelet does, and expects lines in the new file and none outside.
func (l *logTenant) checkRotation() {
	l.Helper()
	l.ok("move the log away", os.Rename(l.log, l.log+".old"))
	l.ok("ReopenContainerLog", l.reopen())
	l.eventually("lines in the new log", func() bool {
		info, err := os.Lstat(l.log)
		return err == nil && info.Mode().IsRegular() && info.Size() > 0
	})
	l.checkOutside()
}

// checkOutside expects the file of the node unchanged, and no other next to it.
func (l *logTenant) checkOutside() {
	l.Helper()
	if got, err := os.ReadFile(l.secret); string(got) != "secret" {
		l.Fatalf("a file of the node contains %.200q, %v, want %q", got, err, "secret")
	}
	if files, err := os.ReadDir(l.outside); len(files) != 1 {
		l.Fatalf("files of the node = %v, %v, want one", files, err)
	}
}

func (l *logTenant) linkDirectory() {
	l.exec(l.tenant, "mv "+l.dir+" "+l.dir+".away && ln -s "+l.outside+" "+l.dir)
	l.refused("reopen through a link at the log's directory", l.reopen(), "link", codes.FailedPrecondition)
	time.Sleep(100 * time.Millisecond) // for lines of a monitor that writes elsewhere
	l.checkOutside()
	l.exec(l.tenant, "rm "+l.dir+" && mv "+l.dir+".away "+l.dir)
	l.checkRotation()
}

func (l *logTenant) linkLogDirectory() {
	dir := l.podCfg.LogDirectory
	l.exec(l.tenant, "mv "+dir+" "+dir+".away && ln -s "+l.outside+" "+dir)
	cfg := l.containerConfig([]string{"echo", "escaped"})
	_, err := l.tryCreate(l.pod, cfg, l.podCfg)
	l.refused("create with a link at log_directory", err, "log_directory", codes.FailedPrecondition)
	l.refused("reopen through a link at log_directory", l.reopen(), "log_directory", codes.FailedPrecondition)
	l.checkOutside()
	l.exec(l.tenant, "rm "+dir+" && mv "+dir+".away "+dir)
	l.checkRotation()
}

// plantLog puts files that must not be written at the log's own path, after the kubelet has moved the log away.
func (l *logTenant) plantLog() {
	for name, plant := range map[string]string{
		"symbolic link": "ln -s " + l.secret + " " + l.log,
		"hard link":     "echo x > " + l.dir + "/other && ln " + l.dir + "/other " + l.log,
		"FIFO":          "mkfifo " + l.log,
		"device":        "mknod " + l.log + " c 1 1",
		"directory":     "mkdir " + l.log,
	} {
		l.ok("move the log away", os.Rename(l.log, l.log+".old"))
		l.exec(l.tenant, plant)
		l.refused("reopen with a "+name+" at the log", l.reopen(), "log", codes.FailedPrecondition)
		l.checkOutside()
		l.exec(l.tenant, "rm -r "+l.log+" && mv "+l.log+".old "+l.log)
	}
	l.checkRotation()
}

// plantNext puts files where conmon opens the next log by its own naming.
func (l *logTenant) plantNext() {
	next := l.log + ".tmp"
	for name, plant := range map[string]string{
		"symbolic link": "ln -s " + l.secret + " " + next,
		"hard link":     "ln " + l.log + ".old " + next,
		"FIFO":          "mkfifo " + next,
		"device":        "mknod " + next + " c 1 1",
		"directory":     "mkdir " + next,
	} {
		l.checkRotation()
		l.exec(l.tenant, plant)
		l.checkRotation()
		if text := l.exec(l.tenant, "rm -r "+next+" && echo kept"); !strings.Contains(text, "kept") {
			l.Errorf("the %s at %s is gone, want it left alone", name, filepath.Base(next))
		}
	}
}

// race exchanges the log, its directory and the next log for links while the log is rotated.
func (l *logTenant) race() {
	stop := l.dir + ".stop"
	l.exec(l.tenant, "(while [ ! -e "+stop+" ]; do ln -sfn "+l.secret+" "+l.log+".tmp; ln -s "+l.secret+" "+l.log+"; "+
		"mv "+l.dir+" "+l.dir+".away; ln -s "+l.outside+" "+l.dir+"; rm "+l.dir+"; mv "+l.dir+".away "+l.dir+
		"; done >/dev/null 2>&1 &)")
	moved, deadline := 0, time.Now().Add(time.Minute)
	// On a busy machine the directory may be away during all of the first tries.
	for tries := 0; tries < 150 || moved < 5 && time.Now().Before(deadline); tries++ {
		if os.Rename(l.log, l.log+".old") == nil {
			moved++
		}
		_ = l.reopen() // refused or not
		l.checkOutside()
	}
	if moved < 5 {
		l.Errorf("the log was moved away %d times in the race, want 5 or more", moved)
	}
	l.exec(l.tenant, "touch "+stop)
	l.eventually("the race has ended", func() bool {
		return !strings.Contains(l.exec(l.tenant, "ps"), stop)
	})
	l.exec(l.tenant, "rm -f "+l.log+".tmp "+l.log+"; mkdir -p "+l.dir)
	l.ok("ReopenContainerLog", l.reopen())
	l.checkRotation()
}
