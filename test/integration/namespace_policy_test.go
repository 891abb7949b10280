package integration

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestNamespacePolicy: pods of a namespace with a signature policy of its own get only images that it accepts, by a
// pull, as an image that was pulled for others, or as a volume.
func TestNamespacePolicy(t *testing.T) {
	t.Parallel()
	const (
		allowed   = "registry.k8s.io/e2e-test-images/busybox"
		forbidden = "gcr.io/k8s-staging-cri-tools/test-image-digest:latest"
		policy    = `{"default":[{"type":"reject"}],
			"transports":{"docker":{"` + allowed + `":[{"type":"insecureAcceptAnything"}]}}}`
	)
	dir := t.TempDir()
	k := start(t, `image.policy_dir="`+dir+`"`)
	write := func(file, text string) {
		k.ok("write a policy", os.WriteFile(dir+"/"+file, []byte(text), 0o600))
	}
	write("team.json", policy)
	k.pull(forbidden)
	k.have(busybox)
	ofTeam := func(c *cri.PodSandboxConfig) { c.Metadata.Namespace = "team" }
	withForbidden := func(c *cri.ContainerConfig) { c.Image.Image = forbidden }
	withVolume := func(c *cri.ContainerConfig) {
		c.Mounts = append(c.Mounts,
			&cri.Mount{ContainerPath: "/volume", Image: &cri.ImageSpec{Image: forbidden}, Readonly: true})
	}

	pod, cfg := k.pod(ofTeam)
	_, err := k.Images.PullImage(k.ctx(),
		&cri.PullImageRequest{Image: &cri.ImageSpec{Image: forbidden}, SandboxConfig: cfg})
	k.refused("pull for the namespace", err, "SignatureValidationFailed", codes.Unknown)
	_, err = k.tryCreate(pod, k.containerConfig([]string{"true"}, withForbidden), cfg)
	k.refused("container of an image that another namespace has pulled", err, `in namespace "team"`, codes.Unknown)
	_, err = k.tryCreate(pod, k.containerConfig([]string{"true"}, withVolume), cfg)
	k.refused("volume of that image", err, `in namespace "team"`, codes.Unknown)
	k.runIn(pod, cfg, []string{"sleep", "1000"})
	other, otherCfg := k.pod()
	k.runIn(other, otherCfg, []string{"sleep", "1000"}, withForbidden, withVolume)

	for namespace, want := range map[string]string{"team": "reject", "others": "insecureAcceptAnything"} {
		if out := k.runs("image", "explain", "--namespace", namespace, forbidden); !strings.Contains(out, want) {
			k.Errorf("image explain --namespace %s, want %s:\n%s", namespace, want, out)
		}
	}
	write("broken.json", "{")
	if _, errs, code := k.podd("reload"); code != 1 || !strings.Contains(errs, dir+"/broken.json") {
		k.Errorf("reload with a broken policy: exit status %d, %q, want 1 and the file", code, errs)
	}
	k.ok("remove the broken policy", os.Remove(dir+"/broken.json"))
	k.runs("reload")
	write("team.json", strings.ReplaceAll(policy, "reject", "insecureAcceptAnything"))
	k.runIn(pod, cfg, []string{"sleep", "1000"}, withForbidden, withVolume) // read at every use
}
