package record

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
)

// NewID returns the id of a new pod or container: 64 random hexadecimal digits.
func NewID() string {
	var b [32]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

// ContainersDir is the directory of the containers' records in that of their pod's.
const ContainersDir = "containers"

// Layout is where podd keeps its files: absolute paths. The README of sandbox has the tree.
type Layout struct {
	// Root is the directory of the records, which survive a reboot.
	Root string
	// Run is the directory of files that a reboot removes.
	Run string
	// NetnsDir is the directory of pinned network namespaces, which other programs use, too. Empty: OwnNetns.
	NetnsDir string
}

// Pods is the directory of the records.
func (l Layout) Pods() string { return filepath.Join(l.Root, "pods") }

// Images is where the images of the checkpoint are that a pod is restored from, until its containers run.
func (l Layout) Images(pod string) string { return filepath.Join(l.Pods(), pod, "images") }

// SnapshotKey is the key that seals this node's checkpoints.
func (l Layout) SnapshotKey() string { return filepath.Join(l.Root, "snapshot.key") }

// Quarantine is where damaged records are moved to.
func (l Layout) Quarantine() string { return filepath.Join(l.Root, "quarantine") }

// OwnNetns is the directory of network namespaces, named by pod, that no other program uses. Every podd pinned them
// there before NetnsDir could be configured.
func (l Layout) OwnNetns() string { return filepath.Join(l.Run, "netns") }

// NetnsPrefix starts the names of podd's files in NetnsDir.
const NetnsPrefix = "podd-"

// sharesNetns reports whether new pods' network namespaces are where other programs have theirs.
func (l Layout) sharesNetns() bool { return l.NetnsDir != "" && l.NetnsDir != l.OwnNetns() }

// Netns is where the network namespace of a new pod is pinned; that of an existing pod is in its record.
func (l Layout) Netns(pod string) string {
	if l.sharesNetns() {
		return filepath.Join(l.NetnsDir, NetnsPrefix+pod)
	}
	return filepath.Join(l.OwnNetns(), pod)
}

// NetnsClaim is the claim (see namespaces.Request) of a pod whose network namespace is pinned at netns: "" if it needs
// none, because it has no such namespace or it is in OwnNetns.
func (l Layout) NetnsClaim(pod, netns string) string {
	if netns == "" || filepath.Dir(netns) == l.OwnNetns() {
		return ""
	}
	return l.ClaimLink(pod)
}

// ClaimLink is the path of a pod's claim.
func (l Layout) ClaimLink(pod string) string { return filepath.Join(l.PodRun(pod), "net") }

// PodRuns is the directory of the directories that PodRun returns.
func (l Layout) PodRuns() string { return filepath.Join(l.Run, "pods") }

// PodRun is the directory of a pod's files and pins.
func (l Layout) PodRun(pod string) string { return filepath.Join(l.PodRuns(), pod) }

// PodEtcs is the directory of the directories that PodEtc returns.
func (l Layout) PodEtcs() string { return filepath.Join(l.Run, "etc") }

// PodEtc is the directory of a pod's files that its containers see in /etc.
func (l Layout) PodEtc(pod string) string { return filepath.Join(l.PodEtcs(), pod) }

// Bundles is the directory of the directories that Bundle returns.
func (l Layout) Bundles() string { return filepath.Join(l.Run, "containers") }

// Bundle is the directory in which the runtime keeps config.json of a container.
func (l Layout) Bundle(container string) string { return filepath.Join(l.Bundles(), container) }

// Pins are the pin files of a pod's namespaces but the network's, which is in the record.
type Pins struct{ IPC, UTS, User string }

// Pins returns the pin files of a pod.
func (l Layout) Pins(pod string) Pins {
	dir := l.PodRun(pod)
	return Pins{IPC: filepath.Join(dir, "ipc"), UTS: filepath.Join(dir, "uts"), User: filepath.Join(dir, "user")}
}

// Names lists the entries of dir.
func Names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, err
}
