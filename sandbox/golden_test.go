package sandbox

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"google.golang.org/protobuf/testing/protocmp"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/sandbox/garbage"
	"github.com/podd-project/podd/sandbox/record"
)

var update = flag.Bool("update", false, "write testdata/state-v<format> as this version writes it")

// The state directories of every format that podd was released with are kept in testdata, and read by this test for
// ever. What is in the newest one is what this version writes, byte for byte.

const (
	goldenPod       = "aa11aa11aa11aa11aa11aa11aa11aa11aa11aa11aa11aa11aa11aa11aa11aa11"
	goldenContainer = "bb22bb22bb22bb22bb22bb22bb22bb22bb22bb22bb22bb22bb22bb22bb22bb22"
)

func goldenPodRecord() (record.Pod, record.PodStatus) {
	config := podConfig("web")
	config.LogDirectory = "/var/log/pods/web"
	config.Labels = map[string]string{"app": "web"}
	config.Annotations = map[string]string{"note": "a \"quoted\" text, ü"}
	config.DnsConfig = &cri.DNSConfig{
		Servers: []string{"10.0.0.10"}, Searches: []string{"svc.cluster.local"}, Options: []string{"ndots:5"},
	}
	config.PortMappings = []*cri.PortMapping{{Protocol: cri.Protocol_UDP, ContainerPort: 53, HostPort: 5353}}
	config.Linux.CgroupParent = "/kubepods/burstable/pod1"
	config.Linux.Sysctls = map[string]string{"net.ipv4.ip_forward": "1"}
	return record.Pod{
			ID: goldenPod, CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC), Config: config,
			RequestedHandler: "other", Handler: "other", Netns: "/run/podd/netns/" + goldenPod, Labels: spec.Labels{
				Process: "system_u:system_r:container_t:s0:c1,c2", Mount: "system_u:object_r:container_file_t:s0:c1,c2",
			},
			BootID: "0e7ac198-9acd-4c0c-b4b4-761974bf71d7",
		}, record.PodStatus{
			State: record.PodReady, IPs: []string{"10.1.2.3", "fd00::3"}, Infra: oci.Process{Pid: 1234, Start: 5678}, Reason: "",
		}
}

func goldenContainerRecord() (record.Container, record.ContainerStatus) {
	config := containerConfig("main")
	config.Command, config.Args = []string{"/bin/sleep"}, []string{"1000"}
	config.Envs = []*cri.KeyValue{{Key: "KEY", Value: []byte("not \xff UTF-8")}}
	config.LogPath = "main/0.log"
	return record.Container{
			ID: goldenContainer, PodID: goldenPod, CreatedAt: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC), Config: config,
			ImageID: fakeImageID, StopSignal: "SIGTERM",
		}, record.ContainerStatus{
			State: record.ContainerExited, Process: oci.Process{Pid: 2345, Start: 6789},
			StartedAt:  time.Date(2026, 1, 2, 3, 4, 7, 0, time.UTC),
			FinishedAt: time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC),
			ExitCode:   137, Reason: reasonOOMKilled, Message: "out of memory",
			Resources: &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, CpuQuota: 20000},
			User:      &specs.User{UID: 1000, GID: 1000, AdditionalGids: []uint32{10, 20}},
		}
}

// goldenFormat names the directory of the formats that this version writes.
func goldenFormat() string {
	return filepath.Join("testdata", fmt.Sprintf("state-v%d.%d", record.Version, record.StatusVersion))
}

// writeGolden writes the records as the engine does, below dir.
func writeGolden(t *testing.T, dir string) {
	t.Helper()
	e, _ := makeEngine(t, newMachine(t), "boot-1")
	e.paths.Root = dir
	pr, ps := goldenPodRecord()
	p := e.newPod(pr, ps, nil)
	mustSave(t, p.dir, p.Pod, p.Status())
	cr, cs := goldenContainerRecord()
	c := e.newContainer(p, cr, cs)
	mustSave(t, c.dir, c.Container, c.Status())
}

// mustSave writes a new record and waits until it is on the disk.
func mustSave(t *testing.T, dir string, r any, status record.Status) {
	t.Helper()
	saved, err := record.Create(checkpoint.Files{}, dir, r, status)
	must(t, errors.Join(err, saved.Wait()))
}

func TestFormatIsAsReleased(t *testing.T) {
	if *update {
		must(t, os.RemoveAll(goldenFormat()))
		writeGolden(t, goldenFormat())
	}
	dir := t.TempDir()
	writeGolden(t, dir)
	files := 0
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		rel, err := filepath.Rel(dir, path)
		must(t, err)
		now, err := os.ReadFile(path)
		must(t, err)
		released, err := os.ReadFile(filepath.Join(goldenFormat(), rel))
		must(t, err)
		if steady(now) != steady(released) {
			t.Errorf("%s is not written as it was released. "+
				"When an older podd can read it (a field more), run the test with -update; "+
				"if not, raise record.Version or record.StatusVersion before.\n%s", rel, cmp.Diff(string(released), string(now)))
		}
		return nil
	}))
	if files != 4 {
		t.Errorf("compared %d files, want 4: a record and a status of the pod and of the container", files)
	}
}

// steady is a record without its header, whose sum follows from the rest, and without the spaces that protojson adds at
// random so that nobody relies on them.
func steady(record []byte) string {
	_, body, _ := bytes.Cut(record, []byte{'\n'})
	return strings.Join(strings.Fields(string(body)), "")
}

func TestStateOfEveryReleaseIsRead(t *testing.T) {
	releases, err := filepath.Glob("testdata/state-v*")
	must(t, err)
	if len(releases) == 0 {
		t.Fatal("no released state directories")
	}
	for _, release := range releases {
		t.Run(filepath.Base(release), func(t *testing.T) {
			m := newMachine(t)
			must(t, os.CopyFS(filepath.Join(m.dir, "root"), os.DirFS(release)))
			e, _ := newEngineAt(t, m, "another boot")
			if q := troubles(e, garbage.Quarantined); len(q) > 0 {
				t.Fatalf("quarantined %v", q)
			}
			p, err := e.Pod(goldenPod)
			must(t, err)
			c, err := e.Container(goldenContainer)
			must(t, err)
			pr, ps := goldenPodRecord()
			cr, cs := goldenContainerRecord()
			ps.State, ps.Reason = record.PodNotReady, "the node was rebooted"
			for what, diff := range map[string]string{
				"pod record":       cmp.Diff(pr, p.Pod, protocmp.Transform()),
				"pod status":       cmp.Diff(ps, p.Status(), protocmp.Transform()),
				"container record": cmp.Diff(cr, c.Container, protocmp.Transform()),
				"container status": cmp.Diff(cs, c.Status(), protocmp.Transform()),
			} {
				if diff != "" {
					t.Errorf("%s: %s", what, diff)
				}
			}
			must(t, e.RemovePod(t.Context(), goldenPod))
			noLeaks(t, m)
		})
	}
}
