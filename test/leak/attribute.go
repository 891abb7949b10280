package leak

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// What podd's tests name the things that they make, wherever the name appears: in a path, a command line, a cgroup, a
// rule's comment. Names that another program could use as well are left out.
var testNames = []*regexp.Regexp{
	// Directories below the temporary directories: of daemons and clusters, of t.TempDir, of package tests.
	regexp.MustCompile(tempDirs() + `/(podd-|bench-|oci[0-9]|ev[0-9]|Test[A-Z][^/ ]*/[0-9]{3}\b)`),
	// cgroup parents of the tests' pods, under cgroupfs and under systemd.
	regexp.MustCompile(`/podd-(t|k8s|h|test)-|\bpoddt[0-9]+\.slice\b`),
	// cgroups of containers whose pod names no parent.
	regexp.MustCompile(`/(podd|podd\.slice)/(podd|crio)-[0-9a-f]{64}\b`),
	// Bridges and CNI networks of package daemon and of networktest; the link to a cluster of test/k8s.
	regexp.MustCompile(`\bpt([0-9]{5,10}|[0-9a-f]{8})\b|\bpk[0-9]{3}-[0-9a-f]{4}\b`),
	// Mount sources and abstract sockets.
	regexp.MustCompile(`\bpodd-test\b`),
}

// tempDirs returns a regular expression for the directories that tests make theirs in.
func tempDirs() string {
	dirs := []string{"/tmp", "/dev/shm", "/var/tmp"}
	if tmp := filepath.Clean(os.TempDir()); !slices.Contains(dirs, tmp) {
		dirs = append(dirs, regexp.QuoteMeta(tmp))
	}
	return `(^|//|[^\w/])(` + strings.Join(dirs, "|") + `)`
}

// cniChain is the name of a chain that a CNI plugin makes for one pod, see Chains.
var cniChain = regexp.MustCompile(`\bCNI-(DN-|SN-)?[0-9a-f]{8,}\b`)

// Difference is one thing that only one of two snapshots has.
type Difference struct {
	Kind, Key, Detail string
	// Lost is true for a thing that is missing now, false for one that is new.
	Lost bool
	// Ours is true for a thing that one of podd's tests made, by its names.
	Ours bool
}

func (d Difference) String() string {
	what := "left over:"
	if d.Lost {
		what = "lost:     "
	}
	return strings.TrimRight(fmt.Sprintf("%s %-8s %s  %s", what, d.Kind, d.Key, d.Detail), " ")
}

// attribute sets Ours. A chain of the packet filter has no name but a hash; it is ours when a rule of ours names it, in
// either snapshot.
func attribute(list []Difference, snapshots ...Snapshot) {
	chains := map[string]bool{}
	for _, s := range snapshots {
		for rule := range s["rule"] {
			if hasTestName(rule) {
				for _, chain := range cniChain.FindAllString(rule, -1) {
					chains[chain] = true
				}
			}
		}
	}
	for i, d := range list {
		list[i].Ours = hasTestName(d.Key) || hasTestName(d.Detail) || d.Kind == "rule" &&
			slices.ContainsFunc(cniChain.FindAllString(d.Key, -1), func(c string) bool { return chains[c] })
	}
}

func hasTestName(text string) bool {
	return slices.ContainsFunc(testNames, func(r *regexp.Regexp) bool { return r.MatchString(text) })
}
