package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The kubelet's checkpoint API saves a container in an archive below the kubelet's directory. Debian's checkpointctl
// reads it, and the container runs on.
func TestCheckpoint(t *testing.T) {
	k := parallel(t)
	k.run("p", `
containers:
- name: count
  image: BUSYBOX
  command: [sh, -c, "i=0; while true; do i=$((i+1)); echo $i; sleep 0.1; done"]
- {name: other, image: BUSYBOX, command: [sleep, "10000"]}
`)
	before := identify(k.get("p"))
	archives, err := k.checkpoint("p", "count")
	k.ok("checkpoint the container", err)
	if len(archives) != 1 || filepath.Dir(archives[0]) != c.Node(k.node).Path("kubelet", "checkpoints") {
		k.Fatalf("archives = %q, want one in the kubelet's directory of checkpoints", archives)
	}
	lines := k.lines("p")
	k.eventually("the container runs on", func(context.Context) error {
		if now := k.lines("p"); now <= lines {
			return fmt.Errorf("its log has %d lines, as before", now)
		}
		return nil
	})
	k.same("the pod afterwards", fmt.Sprint(identify(k.get("p"))), fmt.Sprint(before))
	info, err := os.Stat(archives[0])
	k.ok("the archive", err)
	k.same("mode of the archive", info.Mode(), os.FileMode(0o600))
	out, err := exec.Command(filepath.Join(c.Bin, "checkpointctl"), "inspect", "--all", archives[0]).CombinedOutput()
	k.ok("checkpointctl: "+string(out), err)
	k.contains("checkpointctl inspect", string(out), "\ncount\n", busybox, "Kubernetes namespace: "+k.ns, "Pod name: p\n",
		"Runtime: runc", "Process tree")
	_, err = k.checkpoint("p", "none")
	k.same("checkpoint of no container is an error of that kind", apierrors.IsNotFound(err), true)
}

// checkpoint asks the kubelet to save a container, and returns the archives' paths.
func (k *scene) checkpoint(pod, container string) ([]string, error) {
	var answer struct{ Items []string }
	path := "/api/v1/nodes/" + k.node + "/proxy/checkpoint/" + k.ns + "/" + pod + "/" + container
	data, err := c.Client.CoreV1().RESTClient().Post().AbsPath(path).DoRaw(k.Context())
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, data)
	}
	err = json.Unmarshal(data, &answer)
	return answer.Items, err
}

// lines returns how many lines the log of the pod's first container has, which are the numbers from 1.
func (k *scene) lines(pod string) int {
	k.Helper()
	lines := strings.Fields(k.logs(pod))
	for i, line := range lines {
		if line != strconv.Itoa(i+1) {
			k.Fatalf("line %d of the log = %q", i+1, line)
		}
	}
	return len(lines)
}
