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
					t.Errorf("message of %d items has %d bytes, want at most %d", len(batch), size, batchBytes)
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

// TestSendBatchesDoesNotCollect: a message is sent before the items of the next one are produced.
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
			t.Fatalf("%d items produced when %d are sent, want at most 1 more", made, sent)
		}
		return nil
	})
	if err != nil || sent != 100 {
		t.Errorf("sent %d items, %v, want 100", sent, err)
	}
}

func TestSendBatchesStopsOnError(t *testing.T) {
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
		t.Errorf("sendBatches = %v after %d items, want %v after at most 2", err, made, gone)
	}
}

// TestStreamsOfMoreThanAMessage streams more than fits in one gRPC message.
func TestStreamsOfMoreThanAMessage(t *testing.T) {
	h := newHarness(t)
	h.engine.pods, h.engine.containers = nil, nil
	const n, weight = 40, 500 << 10 // 20 MB
	for i := range n {
		id := fmt.Sprintf("%064d", i)
		p, c := podRecord(id), *runningContainer().Container
		p.Config.Annotations = map[string]string{"big": strings.Repeat("a", weight)}
		c.ID, c.Config = id, goodContainer()
		c.Config.Annotations = p.Config.Annotations
		h.engine.pods = append(h.engine.pods, record.PodView{Pod: p, Status: record.PodStatus{State: record.PodReady}})
		h.engine.containers = append(h.engine.containers, record.ContainerView{Container: &c})
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
		t.Errorf("got %d pods in %d messages and %d containers, want %d in %d, and %d",
			len(gotPods), messages, len(gotContainers), n, n/2, n)
	}
	for i := range n {
		want := fmt.Sprintf("%064d", i)
		if pod, container := gotPods[i].GetId(), gotContainers[i].GetId(); pod != want || container != want {
			t.Errorf("item %d: pod %s, container %s, want %s", i, pod, container, want)
		}
	}
}
