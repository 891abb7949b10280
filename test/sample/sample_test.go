package sample

import (
	"fmt"
	"testing"
)

func TestTakes(t *testing.T) {
	for value, want := range map[string]struct{ least, most int }{
		"":                        {1000, 1000},
		"all":                     {1000, 1000},
		"3f786850e387550fdab836e": {200, 300},
		"89e6c98d92887913cadf06b": {200, 300},
	} {
		t.Setenv(Variable, value)
		taken := 0
		for i := range 1000 {
			if Takes(4, "test", i) {
				taken++
			}
		}
		if taken < want.least || taken > want.most {
			t.Errorf("%q takes %d of 1000, want %d to %d", value, taken, want.least, want.most)
		}
	}
}

// TestCommitsTakeEverything: what one commit leaves out, others take.
func TestCommitsTakeEverything(t *testing.T) {
	seen := map[int]bool{}
	for i := range 100 {
		t.Setenv(Variable, fmt.Sprint("commit", i))
		first, distance := Every(4, "list")
		if distance != 4 {
			t.Fatalf("distance = %d, want 4", distance)
		}
		seen[first] = true
	}
	for first := range 4 {
		if !seen[first+1] {
			t.Errorf("no commit starts with number %d", first+1)
		}
	}
}

// TestSome: the first handler is always there, each other one for some commits.
func TestSome(t *testing.T) {
	counts := map[string]int{}
	for i := range 300 {
		t.Setenv(Variable, fmt.Sprint("commit", i))
		for _, name := range Some(t, "runc", "crun", "vm") {
			counts[name]++
		}
	}
	if counts["runc"] != 300 || counts["crun"] < 50 || counts["crun"] > 150 || counts["vm"] < 50 || counts["vm"] > 150 {
		t.Errorf("300 commits take %v, want runc always, crun and vm about 100 times", counts)
	}
}
