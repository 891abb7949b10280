package server

import (
	"testing"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/image"
)

func TestListItemsAreEncodedOnce(t *testing.T) {
	var cache listCache[int]
	records := []int{1, 2, 3}
	made := 0
	walk := func(version any, records ...*int) {
		p := cache.newPass()
		for _, one := range records {
			p.encode(one, version, func() proto.Message {
				made++
				return &cri.PodSandbox{Id: "x"}
			})
		}
		p.commit()
	}
	for i, step := range []struct {
		version any
		records []*int
		made    int // by this step
		kept    int
	}{
		{nil, []*int{&records[0], &records[1]}, 2, 2},
		{nil, []*int{&records[0], &records[1]}, 0, 2},
		{nil, []*int{&records[0], &records[1], &records[2]}, 1, 3},
		{nil, []*int{&records[2]}, 0, 1},              // the others are removed
		{nil, []*int{&records[0], &records[2]}, 1, 2}, // one is added again
		{"v2", []*int{&records[0], &records[2]}, 2, 2},
		{"v2", []*int{&records[0], &records[2]}, 0, 2},
	} {
		made = 0
		walk(step.version, step.records...)
		if kept := len(*cache.last.Load()); made != step.made || kept != step.kept {
			t.Errorf("step %d: made %d, kept %d; want %d and %d", i, made, kept, step.made, step.kept)
		}
	}
}

func TestItemThatCannotBeEncodedIsSentUncached(t *testing.T) {
	p := newFakeEngine().pods[0]
	p.Config.Labels = map[string]string{"a": "\xff"} // such as a damaged record
	var cache listCache[int]
	record := 1
	fixed := cache.newPass().encode(&record, nil, func() proto.Message { return fixedPodItem(p.Pod) })
	if fixed != nil {
		t.Errorf("encode = %q, want nil", fixed)
	}
	if item := podItem(p, nil); item.GetId() != podID || item.GetMetadata() == nil ||
		item.GetState() != cri.PodSandboxState_SANDBOX_READY {
		t.Errorf("podItem = %v, want all fields of %s", item, podID)
	}
}

// TestListsFollowChanges: a list shows changes of states and images, and its cache drops removed records.
func TestListsFollowChanges(t *testing.T) {
	h := newHarness(t)
	containers := func() []*cri.Container {
		return must[*cri.ListContainersResponse](t)(
			h.runtime.ListContainers(t.Context(), &cri.ListContainersRequest{}),
		).GetContainers()
	}
	pods := func() []*cri.PodSandbox {
		return must[*cri.ListPodSandboxResponse](t)(
			h.runtime.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{}),
		).GetItems()
	}
	containers()
	pods()

	h.engine.containers[0].Status.State = "exited"
	h.engine.pods[0].Status.State = "notready"
	if s := containers()[0].GetState(); s != cri.ContainerState_CONTAINER_EXITED {
		t.Errorf("container state = %v, want exited", s)
	}
	if s := pods()[0].GetState(); s != cri.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("pod state = %v, want not ready", s)
	}

	h.images.images = []*image.Image{{ID: imageID, Tags: []string{"new/name:2"}, Digests: []string{"new/name@sha256:33"}}}
	if c := containers()[0]; c.GetImage().GetImage() != "new/name:2" || c.GetImageRef() != "new/name@sha256:33" {
		t.Errorf("image %q, ref %q, want the new names", c.GetImage().GetImage(), c.GetImageRef())
	}
	h.images.images = nil
	if c := containers()[0]; c.GetImage().GetImage() != imageID || c.GetImageRef() != imageID {
		t.Errorf("image %q, ref %q, want %s for both", c.GetImage().GetImage(), c.GetImageRef(), imageID)
	}

	h.engine.containers, h.engine.pods = h.engine.containers[:1], nil
	if c, p := len(containers()), len(pods()); c != 1 || p != 0 {
		t.Errorf("listed %d containers and %d pods, want 1 and 0", c, p)
	}
	if n := len(*h.server.containerCache.last.Load()); n != 1 {
		t.Errorf("%d containers in the cache, want 1", n)
	}
}

// TestListItemsAreWhole: at the client an item has all its fields, and no unknown ones.
func TestListItemsAreWhole(t *testing.T) {
	h := newHarness(t)
	for range 2 { // the second list uses the cache
		r := must[*cri.ListContainersResponse](t)(h.runtime.ListContainers(t.Context(), &cri.ListContainersRequest{}))
		for _, c := range r.GetContainers() {
			if len(c.ProtoReflect().GetUnknown()) > 0 || c.GetMetadata().GetName() != "main" || c.GetCreatedAt() == 0 {
				t.Errorf("item %v, want name main, a creation time and no unknown fields", c)
			}
		}
	}
}
