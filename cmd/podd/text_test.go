package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/sandbox/budget"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/streaming"
)

// wantLines fails the test unless the lines of text, with their white space reduced, are the wanted ones.
func wantLines(t *testing.T, text string, want ...string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 0 {
			got = append(got, strings.Join(words, " "))
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestStatusText: pulls and sessions are printed when there are any.
func TestStatusText(t *testing.T) {
	s := nodeStatus{admin.Status{
		Version: "v1", Host: "node", Started: time.Now().Add(-time.Hour),
		Configuration: admin.Configuration{Generation: 2, Loaded: time.Unix(0, 0).UTC()},
		Conditions:    []admin.Condition{{Type: "RuntimeReady", Ready: true}},
		Budgets: []budget.Usage{
			{Name: "output", Unit: "bytes", Limit: 100, PerOwner: 50, Owner: "pod", InUse: 7, Peak: 90, Refused: 3},
		},
		Pods: []admin.Pod{{ID: "0123456789abcdef", Name: "default/web-0", State: "ready"}},
		Pulls: []image.PullProgress{{
			Ref: "r/web:v1", Stage: "downloading", StartedAt: time.Now().Add(-time.Minute), BytesDone: 5, BytesTotal: 9,
		}},
		Disk: admin.Space{Free: 1 << 10, Size: 2 << 10},
		Sessions: []streaming.SessionInfo{
			{Request: "1a2b3c4d", Kind: "exec", Container: "0123456789abcdef", Started: time.Now().Add(-time.Hour),
				IdleSeconds: 90},
			{Kind: "portforward", Pod: "fedcba9876543210", Started: time.Now().Add(-time.Second)},
		},
	}}
	var out strings.Builder
	if err := s.print(&out, true); err != nil {
		t.Fatal(err)
	}
	wantLines(t, out.String(), "podd v1 on node, up 1h0m: no problems",
		"configuration: generation 2, loaded 1970-01-01T00:00:00Z", "RuntimeReady: true",
		"pods: 1 (1 ready), containers: 0", "disk: 1.0 KiB of 2.0 KiB free",
		"Operations in progress: 0", "Pulls in progress: 1",
		"r/web:v1 downloading 5 of 9 bytes 1m0s", "Streaming sessions: 2",
		"exec 0123456789abc age 1h0m0s idle 1m30s request 1a2b3c4d",
		"portforward fedcba9876543 age 1s idle 0s request",
		"Budgets: in use peak limit per owner refused", "output 7 90 100 bytes 50 per pod 3",
		"Pods: 1", "0123456789abc default/web-0 ready 0 containers")
}

func TestDiskText(t *testing.T) {
	d := admin.Disk{DiskImages: admin.DiskImages{Layers: 3 << 20, Unused: 1 << 10}}
	names := []string{"a:1", "a:2"}
	d.Images.Items = []admin.DiskImage{{ID: "0123456789abcdef", Names: names, Bytes: 3 << 20, Unique: 512}}
	d.Containers.Items = []admin.DiskContainer{{ID: "fedcba9876543210", Name: "ns/pod/c", Bytes: 2048, Inodes: 7}}
	var out strings.Builder
	if err := printDisk(&out, d); err != nil {
		t.Fatal(err)
	}
	wantLines(t, out.String(), "IMAGE SIZE UNIQUE CONTAINERS NAMES", "0123456789abc 3.0 MiB 512 B 0 a:1 a:2",
		"all layers 3.0 MiB", "of no image 1.0 KiB left by failed pulls", "CONTAINER WRITTEN FILES NAME",
		"fedcba9876543 2.0 KiB 7 ns/pod/c")
}

// TestHistoryText: stages are printed on demand, and what cannot be read is named.
func TestHistoryText(t *testing.T) {
	h := admin.NewHistory([]operation.Operation{{
		Verb: operation.RunPod, Request: "1a2b3c4d",
		Pod: "0123456789abcdef", Name: "ns/pod", Began: time.Unix(0, 0), Took: ms(40),
		Outcome: operation.OutcomeError, Error: "no network",
		Stages: []operation.Stage{{Name: "network", Took: ms(40)}},
	}}, errors.New("part 7 is damaged"))
	line := "1970-01-01T00:00:00Z RunPodSandbox 1a2b3c4d 0123456789abc ns/pod 40ms error no network"
	heads := "BEGAN VERB REQUEST ID NAME TOOK OUTCOME ERROR"
	damage := "a part of the history cannot be read: part 7 is damaged"
	for stages, want := range map[bool][]string{
		false: {heads, line, damage},
		true:  {heads, line, "network 40ms |" + strings.Repeat("#", waterfallWidth) + "|", damage},
	} {
		var out strings.Builder
		if err := printHistory(&out, h, stages); err != nil {
			t.Fatal(err)
		}
		wantLines(t, out.String(), want...)
	}
}
