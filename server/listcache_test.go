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
		{nil, []*int{&records[2]}, 0, 1},              // the others are gone
		{nil, []*int{&records[0], &records[2]}, 1, 2}, // and new again
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
	p.Record.Config.Labels = map[string]string{"a": "\xff"} // a record of an older podd, say
	var cache listCache[int]
	record := 1
	if fixed := cache.newPass().encode(
		&record, nil, func() proto.Message { return fixedPodItem(p.Record) },
	); fixed != nil {
		t.Errorf("encoded %q", fixed)
	}
	if item := podItem(p, nil); item.GetId() != podID || item.GetMetadata() == nil ||
		item.GetState() != cri.PodSandboxState_SANDBOX_READY {
		t.Errorf("item %v", item)
	}
}

// TestListsFollowChanges: what a list remembers must not outlive what it was made from.
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
		t.Errorf("container's state %v", s)
	}
	if s := pods()[0].GetState(); s != cri.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("pod's state %v", s)
	}

	h.images.images = []*image.Image{{ID: imageID, Tags: []string{"new/name:2"}, Digests: []string{"new/name@sha256:33"}}}
	if c := containers()[0]; c.GetImage().GetImage() != "new/name:2" || c.GetImageRef() != "new/name@sha256:33" {
		t.Errorf("image %q, ref %q", c.GetImage().GetImage(), c.GetImageRef())
	}
	h.images.images = nil
	if c := containers()[0]; c.GetImage().GetImage() != imageID || c.GetImageRef() != imageID {
		t.Errorf("image %q, ref %q", c.GetImage().GetImage(), c.GetImageRef())
	}

	h.engine.containers, h.engine.pods = h.engine.containers[:1], nil
	if len(containers()) != 1 || len(pods()) != 0 {
		t.Error("what is gone is listed")
	}
	if n := len(*h.server.containerCache.last.Load()); n != 1 {
		t.Errorf("%d containers are remembered", n)
	}
}

// TestListItemsAreWhole: seen by a client, an item has its fields, and nothing that is unknown to it.
func TestListItemsAreWhole(t *testing.T) {
	h := newHarness(t)
	for range 2 { // the first list encodes, the second remembers
		r := must[*cri.ListContainersResponse](t)(h.runtime.ListContainers(t.Context(), &cri.ListContainersRequest{}))
		for _, c := range r.GetContainers() {
			if len(c.ProtoReflect().GetUnknown()) > 0 || c.GetMetadata().GetName() != "main" || c.GetCreatedAt() == 0 {
				t.Errorf("item %v", c)
			}
		}
	}
}
