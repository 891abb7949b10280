package worker

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// TestRank: which platforms run on a node, the best first.
func TestRank(t *testing.T) {
	t.Parallel()
	amd64 := func(level float64) node { return node{{"amd64", 1, level}, {"386", 0, 0}} }
	all := []string{"amd64", "amd64/v1", "amd64/v2", "amd64/v3", "amd64/v4", "amd64/odd", "386", "386/i686", "arm64",
		"arm64/v8", "arm64/v9", "arm", "arm/v8", "arm/v7", "arm/v6", "arm/v5", "riscv64", "amd64/NaN", ""}
	for name, c := range map[string]struct {
		on   node
		want []string
	}{
		"linux/amd64/v4": {amd64(4), []string{"amd64/v4", "amd64/v3", "amd64/v2", "amd64", "amd64/v1", "amd64/odd", "386",
			"386/i686", ""}},
		"linux/amd64/v2": {amd64(2), []string{"amd64/v2", "amd64", "amd64/v1", "amd64/odd", "386", "386/i686", ""}},
		"linux/amd64":    {amd64(1), []string{"amd64", "amd64/v1", "amd64/odd", "386", "386/i686", ""}},
		"linux/arm64": {node{{"arm64", 8, 8}, {"arm", 7, 8}}, []string{"arm64", "arm64/v8", "arm/v8", "arm", "arm/v7",
			"arm/v6", "arm/v5", ""}},
		"linux/riscv64": {node{{"riscv64", 0, 0}}, []string{"riscv64", ""}},
	} {
		ranks := map[string]float64{}
		got := slices.DeleteFunc(slices.Clone(all), func(text string) bool {
			arch, variant, _ := strings.Cut(text, "/")
			rank, ok := c.on.rank(v1.Platform{OS: "linux", Architecture: arch, Variant: variant})
			ranks[text] = rank
			return !ok
		})
		slices.SortStableFunc(got, func(a, b string) int { return cmp.Compare(ranks[a], ranks[b]) })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s runs %q, want %q", name, got, c.want)
		}
		if c.on.String() != name {
			t.Errorf("the node is %s, want %s", c.on, name)
		}
	}
	if _, ok := amd64(4).rank(v1.Platform{OS: "windows", Architecture: "amd64"}); ok {
		t.Error("an image for windows runs, want not")
	}
}

// TestAMD64Level: a CPU has a level if it has all flags of it and of those below.
func TestAMD64Level(t *testing.T) {
	t.Parallel()
	cpu := func(flags ...string) string {
		return "vendor_id\t: x\nflags\t\t: fpu " + strings.Join(flags, " ") + "\nbugs\t\t: avx512vl\n\nflags\t\t: cx16\n"
	}
	for name, c := range map[string]struct {
		info string
		want float64
	}{
		"nothing":             {"", 1},
		"old":                 {cpu(), 1},
		"v2":                  {cpu(amd64Levels[:1]...), 2},
		"v3":                  {cpu(amd64Levels[:2]...), 3},
		"v4":                  {cpu(amd64Levels...), 4},
		"v3 without movbe":    {cpu(amd64Levels[0], strings.ReplaceAll(amd64Levels[1], "movbe", "")), 2},
		"v4 without v3's avx": {cpu(amd64Levels[0], amd64Levels[1][len("avx "):], amd64Levels[2]), 2},
	} {
		if got := amd64Level(c.info); got != c.want {
			t.Errorf("%s: level %v, want %v", name, got, c.want)
		}
	}
}
