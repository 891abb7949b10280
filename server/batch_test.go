package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/record"
)

func item(size int) *cri.PodSandbox { return &cri.PodSandbox{Id: strings.Repeat("x", size)} }

func TestSendBatches(t *testing.T) {
	const limit = batchBytes
	for name, tt := range map[string]struct {
		sizes []int
		want  []int // items for each message
	}{
		"nothing":            {nil, nil},
		"one":                {[]int{10}, []int{1}},
		"many small ones":    {slices.Repeat([]int{1000}, 2000), []int{1045, 955}},
		"halves":             {[]int{limit / 2, limit / 2, limit / 2}, []int{1, 1, 1}}, // a half and its header are more
		"less than halves":   {slices.Repeat([]int{limit/2 - 10}, 3), []int{2, 1}},
		"one too large":      {[]int{10, 3 * limit, 10}, []int{1, 1, 1}},
		"only a large one":   {[]int{2 * limit}, []int{1}},
		"large ones only":    {[]int{2 * limit, 2 * limit}, []int{1, 1}},
		"a large one at end": {[]int{1, 2 * limit}, []int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int
			var ids []string
			err := sendBatches(func(yield func(*cri.PodSandbox) bool) {
				for _, size := range tt.sizes {
					if !yield(item(size)) {
						return
					}
				}
			}, func(batch []*cri.PodSandbox) error {
				size := 0
				for _, one := range batch {
					size += proto.Size(one)
					ids = append(ids, one.GetId())
				}
				if len(batch) > 1 && size > batchBytes {
					t.Errorf("a message of %d bytes", size)
				}
				got = append(got, len(batch))
				return nil
			})
			if err != nil || !slices.Equal(got, tt.want) || len(ids) != len(tt.sizes) {
				t.Errorf("messages of %v items, %d in all, %v; want %v", got, len(ids), err, tt.want)
			}
		})
	}
}

// TestSendBatchesDoesNotCollect: what has been sent is made before the rest is asked for.
func TestSendBatchesDoesNotCollect(t *testing.T) {
	made, sent := 0, 0
	err := sendBatches(func(yield func(*cri.PodSandbox) bool) {
		for range 100 {
			made++
			if !yield(item(batchBytes / 4)) {
				return
			}
		}
	}, func(batch []*cri.PodSandbox) error {
		sent += len(batch)
		if made-sent > 1 {
			t.Fatalf("%d made, %d sent", made, sent)
		}
		return nil
	})
	if err != nil || sent != 100 {
		t.Errorf("sent %d, %v", sent, err)
	}
}

func TestSendBatchesStopsWithTheClient(t *testing.T) {
	gone := errors.New("client gone")
	made := 0
	err := sendBatches(func(yield func(*cri.PodSandbox) bool) {
		for made < 100 {
			made++
			if !yield(item(batchBytes)) {
				return
			}
		}
	}, func([]*cri.PodSandbox) error { return gone })
	if !errors.Is(err, gone) || made > 2 {
		t.Errorf("%v after %d items", err, made)
	}
}

// TestStreamsOfMoreThanAMessage lists more than gRPC lets one message carry.
func TestStreamsOfMoreThanAMessage(t *testing.T) {
	h := newHarness(t)
	h.engine.pods, h.engine.containers = nil, nil
	const n, weight = 40, 500 << 10 // 20 MB
	for i := range n {
		id := fmt.Sprintf("%064d", i)
		p, c := podRecord(id), *runningContainer().Record
		p.Config.Annotations = map[string]string{"big": strings.Repeat("a", weight)}
		c.ID, c.Config = id, goodContainer()
		c.Config.Annotations = p.Config.Annotations
		h.engine.pods = append(h.engine.pods, Pod{Record: p, Status: record.PodStatus{State: record.PodReady}})
		h.engine.containers = append(h.engine.containers, Container{Record: &c})
	}
	if _, err := h.runtime.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{}); err == nil {
		t.Error("the list fits into one message: this test proves nothing")
	}
	pods, err := h.runtime.StreamPodSandboxes(t.Context(), &cri.StreamPodSandboxesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	gotPods, messages := receive(t, pods, (*cri.StreamPodSandboxesResponse).GetPodSandboxes)
	containers, err := h.runtime.StreamContainers(t.Context(), &cri.StreamContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	gotContainers, _ := receive(t, containers, (*cri.StreamContainersResponse).GetContainers)
	if len(gotPods) != n || len(gotContainers) != n || messages != n/2 {
		t.Errorf("%d pods in %d messages, %d containers", len(gotPods), messages, len(gotContainers))
	}
	for i := range n {
		if gotPods[i].GetId() != fmt.Sprintf("%064d", i) || gotContainers[i].GetId() != gotPods[i].GetId() {
			t.Errorf("item %d is %s and %s", i, gotPods[i].GetId(), gotContainers[i].GetId())
		}
	}
}
