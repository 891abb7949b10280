package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/podd-project/podd/test/daemon"
	"github.com/podd-project/podd/test/sample"
)

// TestTravel: a pod that one podd has saved goes through a registry to another one, which restores it because it trusts
// the key that has signed it.
func TestTravel(t *testing.T) {
	if !soaking() {
		t.Skip("it takes half a minute: set SOAK=1; TestCheckpointTransfer of cmd/podd is the short variant")
	}
	keys := t.TempDir()
	private, public, other := filepath.Join(keys, "private.pem"), filepath.Join(keys, "public.pem"),
		filepath.Join(keys, "other.pem")
	for _, args := range [][]string{
		{"genpkey", "-algorithm", "ed25519", "-out", private}, {"pkey", "-in", private, "-pubout", "-out", public},
		{"genpkey", "-algorithm", "ed25519", "-out", other},
	} {
		if out, err := exec.Command("openssl", args...).CombinedOutput(); err != nil {
			t.Fatalf("openssl %v: %v: %s", args, err, out)
		}
	}
	from := start(t)
	to := startWith(t, daemon.Options{Set: []string{fmt.Sprintf("runtime.checkpoint_keys = [%q]", public)}})
	for _, handler := range sample.Some(t, "gvisor", "runc") {
		t.Run(handler, func(t *testing.T) { travel(from.sub(t), to.sub(t), handler, []string{private, other}) })
	}
}

// checkpoints runs podd checkpoint, and returns what it prints.
func (k *kubelet) checkpoints(args ...string) string {
	k.Helper()
	out, errs, code := k.podd(append([]string{"checkpoint"}, args...)...)
	if code != 0 {
		k.Fatalf("podd checkpoint %v: exit status %d: %s", args, code, errs)
	}
	return strings.TrimSpace(out)
}

// travel restores a pod of one podd with another. The first of the private keys is trusted there, the second is not.
func travel(from, to *kubelet, handler string, private []string) {
	c, dir, pulled := from.counting(handler), from.snapshotDir(), filepath.Join(to.snapshotDir(), "pulled")
	from.exec(c.containers[0], "echo kept > /data")
	c.runs()
	saved := c.count(0)
	from.ok("CheckpointPod", c.checkpoint(dir))
	moved := *c
	moved.kubelet = to
	for _, config := range c.configs {
		to.pull(config.Image.Image)
	}
	_, err := to.Runtime.RestorePod(to.ctx(), moved.restoreRequest(dir))
	to.refused("RestorePod of another node's checkpoint", err, "checkpoint_keys", codes.PermissionDenied)

	ref := from.registry.Addr + "/checkpoints/" + handler + ":v1"
	for _, key := range []string{private[1], private[0]} { // the last signature is the one that counts
		from.checkpoints("sign", dir, "--key", key)
		if key == private[0] {
			break
		}
		from.checkpoints("push", dir, ref)
		if _, errs, code := to.podd("checkpoint", "pull", ref, pulled); code == 0 || !strings.Contains(errs, "none of the") {
			to.Errorf("pull with the signature of another key = %d, %s, want an error", code, errs)
		}
		_, err := to.Runtime.RestorePod(to.ctx(), moved.restoreRequest(dir))
		to.refused("RestorePod with the signature of another key", err, "none of the", codes.PermissionDenied)
	}
	digest := from.checkpoints("push", dir, ref)
	if got := to.checkpoints("pull", from.registry.Addr+"/checkpoints/"+handler+"@"+digest, pulled); got != digest {
		to.Errorf("digest of the pull = %s, want %s", got, digest)
	}
	to.checkpoints("verify", pulled)
	from.removePod(c.pod)
	from.ok("remove the directory of the first node", os.RemoveAll(dir))

	r := moved.restore(pulled)
	r.startAll()
	r.runs()
	if got := to.exec(r.containers[0], "cat /data; hostname"); got != "kept\n"+r.podConfig.Hostname+"\n" {
		to.Errorf("file and host name in the restored container = %q, want kept and %s", got, r.podConfig.Hostname)
	}
	if n := r.count(0); n < saved {
		to.Errorf("count on the other node = %d, want more than %d", n, saved)
	}
}
