package worker

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// architecture is one whose programs a node runs. Newest is the highest version of its variants that the CPU runs, base
// the one that an image without a variant is for: v2 of amd64 is written "linux/amd64/v2".
type architecture struct {
	name         string
	base, newest float64
}

// node is a machine, by the architectures that it runs, the best first.
type node []architecture

// thisNode returns this machine: 64-bit kernels run 32-bit programs too.
var thisNode = sync.OnceValue(func() node {
	switch runtime.GOARCH {
	case "amd64":
		info, _ := os.ReadFile("/proc/cpuinfo") // unreadable: what every CPU has
		return node{{"amd64", 1, amd64Level(string(info))}, {"386", 0, 0}}
	case "arm64":
		return node{{"arm64", 8, 8}, {"arm", 7, 8}}
	}
	return node{{runtime.GOARCH, 0, 0}}
})

// amd64Levels are the flags in /proc/cpuinfo of the x86-64 psABI's microarchitecture levels, from v2 on.
var amd64Levels = []string{
	"cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3",
	"avx avx2 bmi1 bmi2 f16c fma abm movbe xsave",
	"avx512f avx512bw avx512cd avx512dq avx512vl",
}

// amd64Level returns the highest level that the first CPU of /proc/cpuinfo has.
func amd64Level(cpuinfo string) float64 {
	_, first, _ := strings.Cut(cpuinfo, "\nflags")
	flags, _, _ := strings.Cut(first, "\n")
	has := strings.Fields(flags)
	level := 1.
	for _, wanted := range amd64Levels {
		if slices.ContainsFunc(strings.Fields(wanted), func(flag string) bool { return !slices.Contains(has, flag) }) {
			break
		}
		level++
	}
	return level
}

// Ranks of images that may run: unknown variants come after known ones, images without a platform are last.
const (
	unknownVariant = 99
	perArch        = 100
)

// rank says how well an image of platform p fits the node, the best has the lowest rank. False: it does not run.
func (n node) rank(p v1.Platform) (rank float64, ok bool) {
	if p.OS != "" && p.OS != runtime.GOOS {
		return 0, false
	}
	if p.Architecture == "" {
		return math.Inf(1), true
	}
	i := slices.IndexFunc(n, func(a architecture) bool { return a.name == p.Architecture })
	if i < 0 {
		return 0, false
	}
	version := n[i].base
	if p.Variant != "" {
		parsed, err := strconv.ParseFloat(strings.TrimPrefix(p.Variant, "v"), 64)
		if err != nil || n[i].newest == 0 {
			return float64(i*perArch + unknownVariant), true
		}
		version = parsed
	}
	return float64(i*perArch) + n[i].newest - version, version <= n[i].newest
}

// String returns the platform for which the best images are.
func (n node) String() string {
	p := v1.Platform{OS: runtime.GOOS, Architecture: n[0].name}
	if n[0].newest > n[0].base {
		p.Variant = fmt.Sprintf("v%g", n[0].newest)
	}
	return platformName(p)
}

// checkRunnable fails if an image of platform p does not run here. An image without a platform passes.
func checkRunnable(p v1.Platform) error {
	if _, ok := thisNode().rank(p); ok {
		return nil
	}
	return platformError([]string{platformName(p)})
}

func platformName(p v1.Platform) string {
	name := p.OS + "/" + p.Architecture
	if p.Variant != "" {
		name += "/" + p.Variant
	}
	return name
}

func platformError(available []string) error {
	if len(available) == 0 {
		available = []string{"no known platform"}
	}
	return fmt.Errorf("image is for %s, this node is %s: %w", strings.Join(available, ", "), thisNode(),
		errdefs.ErrInvalidArgument)
}
