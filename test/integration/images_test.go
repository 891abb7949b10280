package integration

import (
	"context"
	"encoding/base64"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/images"
)

func TestImages(t *testing.T) {
	t.Parallel()
	k := start(t, `image.pull_grace="3s"`)
	for _, c := range []struct {
		name string
		test func(*kubelet)
	}{
		{"names", imageNames},
		{"by digest", imageByDigest},
		{"layers", imageLayers},
		{"removal", imageRemoval},
		{"credentials", imageCredentials},
		{"many callers", imageManyCallers},
		{"a caller that leaves", imageCallerLeaves},
		{"a caller that stays away", imageCallerStaysAway},
		{"space", imageSpace},
		{"platforms", imagePlatforms},
		{"what registries do", imageRegistries},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(k.sub(t)) })
	}
}

func imageNames(k *kubelet) {
	ref := k.pull("registry.k8s.io/e2e-test-images/busybox:1.36.1-1")
	img := k.image("registry.k8s.io/e2e-test-images/busybox:1.36.1-1")
	if img.GetId() == "" || img.Id != ref || img.Size == 0 {
		k.Fatalf("ImageStatus = %v, want id %s and a size", img, ref)
	}
	k.pull("busybox") // docker.io/library/busybox:latest, the same image
	names := []string{img.Id, img.Id[:12], "sha256:" + img.Id, "busybox", "busybox:latest",
		"docker.io/library/busybox:latest"}
	img = k.image(img.Id)
	names = append(append(names, img.RepoTags...), img.RepoDigests...)
	for _, name := range names {
		if got := k.image(name); got.GetId() != img.Id {
			k.Errorf("ImageStatus(%s) = %v, want id %s", name, got, img.Id)
		}
		list, err := k.Images.ListImages(k.ctx(),
			&cri.ListImagesRequest{Filter: &cri.ImageFilter{Image: &cri.ImageSpec{Image: name}}})
		k.ok("ListImages", err)
		if len(list.Images) != 1 || list.Images[0].Id != img.Id {
			k.Errorf("ListImages by %s = %v, want only %s", name, list.Images, img.Id)
		}
	}
	for _, want := range []string{"registry.k8s.io/e2e-test-images/busybox:1.36.1-1", "docker.io/library/busybox:latest"} {
		if !slices.Contains(img.RepoTags, want) {
			k.Errorf("tags = %q, want %s among them", img.RepoTags, want)
		}
	}
	for _, none := range []string{"feedfeedfeed", "registry.k8s.io/no/such:image",
		"busybox@sha256:" + strings.Repeat("0", 64)} {
		if got := k.image(none); got != nil {
			k.Errorf("ImageStatus(%s) = %v, want none", none, got)
		}
	}
	full, err := k.Images.ImageStatus(k.ctx(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: img.Id},
		Verbose: true})
	k.ok("verbose ImageStatus", err)
	if len(full.Info) == 0 {
		k.Error("info of a verbose ImageStatus is empty, want some")
	}
}

func imageByDigest(k *kubelet) {
	const name = "gcr.io/k8s-staging-cri-tools/test-image-digest"
	k.pull(name + ":latest")
	digests := k.image(name + ":latest").RepoDigests
	if len(digests) != 1 || !strings.HasPrefix(digests[0], name+"@sha256:") {
		k.Fatalf("digests = %q, want one of %s@sha256:", digests, name)
	}
	k.removeImage(digests[0])
	if left := k.image(name + ":latest"); left != nil {
		k.Fatalf("ImageStatus after removal by digest = %v, want none", left)
	}
	// as a spec of critest does, which cannot be run here: it names a digest that cannot be rebuilt
	id := k.pull(digests[0])
	img := k.image(digests[0])
	if img.GetId() != id || len(img.RepoTags) != 0 || !slices.Equal(img.RepoDigests, digests) {
		k.Errorf("image pulled by digest = %v, want id %s, no tags, digests %q", img, id, digests)
	}
	pod, podCfg := k.pod()
	out, _ := k.outputIn(pod, podCfg, "cat /test",
		func(c *cri.ContainerConfig) { c.Image = &cri.ImageSpec{Image: digests[0]} })
	if out != "test-image-digest:latest" {
		k.Errorf("/test = %q, want %q", out, "test-image-digest:latest")
	}
	k.removePod(pod)
	k.removeImage(id)
	digest := digests[0][strings.Index(digests[0], "@"):]
	if id2 := k.pull(name + ":latest" + digest); id2 != id {
		k.Errorf("PullImage of name:tag@digest = %s, want %s", id2, id)
	}
	_, err := k.tryPull(name+"@sha256:"+strings.Repeat("0", 64), nil)
	k.refused("a digest that does not exist", err, "", codes.NotFound)
	_, err = k.tryPull("registry.k8s.io/lying/e2e-test-images/busybox"+digest, nil)
	if err == nil {
		k.Error("PullImage from a registry that answers with another manifest: error = nil, want one")
	}
}

func imageLayers(k *kubelet) {
	const name = "docker.io/podd/layered:latest"
	k.pull(name)
	pod, podCfg := k.pod()
	out, _ := k.outputIn(pod, podCfg, "cat /replaced; ls /gone /opaque; ls /blob | wc -l; cat /linked-too; stat -c %h "+
		"/linked",
		func(c *cri.ContainerConfig) { c.Image = &cri.ImageSpec{Image: name} })
	want := "layer 23\n/gone:\n23\n\n/opaque:\n23\n24\nlinked\n2\n"
	if out != want {
		k.Errorf("files of the layers = %q, want %q", out, want)
	}
	k.removePod(pod)
	k.removeImage(name)
}

func imageRemoval(k *kubelet) {
	const name = "docker.io/podd/native:latest"
	k.pull(name)
	id := k.image(name).Id
	pod, podCfg := k.pod()
	ctr := k.create(pod, k.containerConfig([]string{"sleep", "1000"},
		func(c *cri.ContainerConfig) { c.Image = &cri.ImageSpec{Image: name} }), podCfg)
	_, err := k.Images.RemoveImage(k.ctx(), &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: name}})
	k.refused("remove an image in use", err, ctr[:12], codes.FailedPrecondition)
	k.startContainer(ctr) // its root filesystem is still there
	k.removePod(pod)
	k.removeImage(name)
	k.removeImage(name)
	k.removeImage(id)
	if img := k.image(id); img != nil {
		k.Errorf("ImageStatus after removal = %v, want none", img)
	}
}

func imageCredentials(k *kubelet) {
	const image = "/pause:3.10"
	basicHost, tokenHost := k.registry.AuthAddr, k.registry.TokenAddr
	right := &cri.AuthConfig{Username: images.User, Password: images.Password}
	basic := &cri.AuthConfig{Auth: base64.StdEncoding.EncodeToString([]byte(images.User + ":" + images.Password))}
	for _, c := range []struct {
		name, image string
		auth        *cri.AuthConfig
		fails       bool
	}{
		{"none", basicHost + image, nil, true},
		{"wrong ones", basicHost + image, &cri.AuthConfig{Username: images.User, Password: "a wrong guess"}, true},
		{"broken base64", basicHost + image, &cri.AuthConfig{Auth: "!!"}, true},
		{"user and password", basicHost + image, right, false},
		{"base64", basicHost + image, basic, false},
		{"registry token", tokenHost + image, &cri.AuthConfig{RegistryToken: images.Token}, false},
		{"a wrong token", tokenHost + image, &cri.AuthConfig{RegistryToken: "no"}, true},
		{"another server's", basicHost + image, &cri.AuthConfig{Username: images.User, Password: images.Password,
			ServerAddress: "elsewhere.test"}, true},
	} {
		_, err := k.tryPull(c.image, c.auth)
		if (err != nil) != c.fails {
			k.Errorf("PullImage with credentials %q: error = %v, want an error: %v", c.name, err, c.fails)
		}
		if err != nil && strings.Contains(err.Error(), "guess") {
			k.Errorf("error = %v, want it without the password", err)
		}
		k.removeImage(c.image)
	}
	log, err := exec.Command("grep", "-cE", "a wrong guess|"+images.Password+"|"+basic.Auth, k.LogFile()).Output()
	if err == nil {
		k.Errorf("lines with credentials in podd's log = %s, want 0", strings.TrimSpace(string(log)))
	}
}

func imageManyCallers(k *kubelet) {
	const image = "registry.k8s.io/slow/pause:3.10"
	before := len(k.registry.Requests())
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if _, err := k.tryPull(image, nil); err != nil {
				k.Errorf("PullImage: %v", err)
			}
		})
	}
	wg.Wait()
	seen := map[string]int{}
	for _, r := range k.registry.Requests()[before:] {
		if strings.Contains(r, "/slow/") {
			seen[r]++
		}
	}
	if len(seen) < 3 {
		k.Errorf("requests = %v, want a manifest, a config and a layer", seen)
	}
	for r, n := range seen {
		if n > 1 {
			k.Errorf("ten pulls at once: %s %d times, want once", r, n)
		}
	}
	k.removeImage(image)
}

func imageCallerLeaves(k *kubelet) {
	const image = "registry.k8s.io/slow/e2e-test-images/nonewprivs:1.3" // another image than the others'
	requests := func(from int, kind string) (found []string) {
		for _, r := range k.registry.Requests()[from:] {
			if strings.HasPrefix(r, "GET /v2/slow/e2e-test-images/nonewprivs/"+kind+"/") {
				found = append(found, r)
			}
		}
		return found
	}
	ctx, leave := context.WithCancel(k.ctx())
	defer leave()
	left := make(chan error, 1)
	go func() {
		_, err := k.Images.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: image}})
		left <- err
	}()
	k.eventually("the pull has the manifest", func() bool { return len(requests(0, "blobs")) > 0 })
	leave()
	k.refused("a pull whose caller leaves", <-left, "", codes.Canceled)
	before := len(k.registry.Requests())
	k.pull(image) // joins the pull, which went on
	if again := requests(before, "manifests"); len(again) > 0 {
		k.Errorf("manifest requests of the second pull = %v, want none", again)
	}
	k.removeImage(image)
}

func imageCallerStaysAway(k *kubelet) {
	const image = "registry.k8s.io/stalled/e2e-test-images/httpd:2.4.39-4"
	ctx, cancel := context.WithTimeout(k.ctx(), 300*time.Millisecond)
	defer cancel()
	_, err := k.Images.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: image}})
	k.refused("a stalled pull", err, "", codes.DeadlineExceeded)
	time.Sleep(4 * time.Second) // longer than pull_grace
	if k.image(image) != nil {
		k.Error("ImageStatus of an image whose registry stalls has an image, want none")
	}
	k.eventually("the cancelled pull has left no files", func() bool {
		temp, err := filepath.Glob(k.Path("root", "storage", "tmp", "*"))
		return err == nil && len(temp) == 0
	})
}

func imageSpace(k *kubelet) {
	const image = "docker.io/podd/layered:latest"
	used := func() *cri.FilesystemUsage {
		r, err := k.Images.ImageFsInfo(k.ctx(), &cri.ImageFsInfoRequest{})
		k.ok("ImageFsInfo", err)
		if len(r.ImageFilesystems) != 1 {
			k.Fatalf("image filesystems = %v, want one", r.ImageFilesystems)
		}
		return r.ImageFilesystems[0]
	}
	before := used()
	if before.FsId.GetMountpoint() == "" || before.Timestamp == 0 || before.InodesUsed.GetValue() == 0 {
		k.Errorf("image filesystem = %v, want mountpoint, timestamp and inodes", before)
	}
	k.pull(image)
	k.eventually("the usage has grown by the 24 MiB of the image", func() bool {
		return used().UsedBytes.GetValue() >= before.UsedBytes.GetValue()+24<<20
	})
	k.removeImage(image)
	k.eventually("the usage has fallen again", func() bool {
		return used().UsedBytes.GetValue() < before.UsedBytes.GetValue()+8<<20
	})
}

func imagePlatforms(k *kubelet) {
	k.pull("docker.io/podd/multiarch:latest")
	out, _ := k.output("echo runs", func(c *cri.ContainerConfig) {
		c.Image = &cri.ImageSpec{Image: "docker.io/podd/multiarch:latest"}
	})
	if out != "runs\n" {
		k.Errorf("output of the image from the list = %q, want %q", out, "runs\n")
	}
	for _, image := range []string{"docker.io/podd/foreign:latest", "docker.io/podd/foreign-list:latest"} {
		_, err := k.tryPull(image, nil)
		if err == nil {
			k.Errorf("PullImage(%s), of another architecture: error = nil, want one", image)
		} else if !strings.Contains(err.Error(), "linux") {
			k.Errorf("PullImage(%s): error = %v, want the platform in the message", image, err)
		}
	}
}

func imageRegistries(k *kubelet) {
	for _, c := range []struct {
		image string
		code  codes.Code
	}{
		{"registry.k8s.io/no/such:image", codes.NotFound},
		{"registry.k8s.io/pause:nosuchtag", codes.NotFound},
		{"registry.k8s.io/corrupt/pause:3.9", 0},
		{"registry.k8s.io/truncated/pause:3.9", 0},
		{"registry.k8s.io/malformed/pause:3.9", 0},
		{"registry.k8s.io/broken/pause:3.9", 0},
		{"UPPER CASE", codes.InvalidArgument},
		{"", codes.InvalidArgument},
		{"registry.k8s.io/../../etc/passwd:x", codes.InvalidArgument},
		{"name@sha256:short", codes.InvalidArgument},
		{"docker://registry.k8s.io/pause:3.9", codes.InvalidArgument},
		{"dir:/etc", 0},
	} {
		_, err := k.tryPull(c.image, nil)
		if err == nil {
			k.Errorf("PullImage(%q): error = nil, want one", c.image)
			continue
		}
		if c.code != 0 {
			k.refused("pull "+c.image, err, "", c.code)
		}
		if strings.HasPrefix(c.image, "registry.") && c.code != codes.InvalidArgument && k.image(c.image) != nil {
			k.Errorf("ImageStatus(%q) after a failed pull has an image, want none", c.image)
		}
	}
}
