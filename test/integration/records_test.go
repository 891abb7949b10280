package integration

import (
	"bytes"
	"fmt"
	"os"
	"testing"
)

// corruptions are ways in which a record's bytes may be damaged.
var corruptions = []struct {
	name    string
	corrupt func(data []byte) []byte
}{
	{"empty", func([]byte) []byte { return nil }},
	{"truncated", func(data []byte) []byte { return data[:len(data)*2/3] }},
	{"a flipped bit", func(data []byte) []byte { data[len(data)/2] ^= 1; return data }},
	{"zeros, as after a power loss", func(data []byte) []byte { return make([]byte, len(data)) }},
	{"of a newer version", func(data []byte) []byte {
		return bytes.Replace(data, []byte(`{"v":1,`), []byte(`{"v":99,`),
			1)
	}},
	{"huge", func([]byte) []byte { return bytes.Repeat([]byte("x"), 9<<20) }},
}

// TestDamagedRecords damages records of all kinds in all ways while no daemon runs. The next daemon starts, leaves
// other pods alone, quarantines the damaged records, and removes the resources of their pods and containers; the same
// pods can be made again.
func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	k := start(t)
	good := k.newBystander()
	var lives []*life
	for range 4 * len(corruptions) {
		l := k.newLife()
		l.upTo(3)
		lives = append(lives, l)
	}
	k.ok("kill podd", k.Kill9())
	for i, c := range corruptions {
		for j, file := range []func(*life) string{
			func(l *life) string { return k.Path("root", "pods", l.podID, "record.json") },
			func(l *life) string { return k.Path("root", "pods", l.podID, "status.json") },
			func(l *life) string {
				return k.Path("root", "pods", l.podID, "containers", l.containerID, "record.json")
			},
			func(l *life) string {
				return k.Path("root", "pods", l.podID, "containers", l.containerID, "status.json")
			},
		} {
			path := file(lives[4*i+j])
			data, err := os.ReadFile(path)
			k.ok("read a record", err)
			k.ok("damage it: "+c.name, os.WriteFile(path, c.corrupt(data), 0o600))
		}
	}
	k.ok("start podd", k.Start(k.ctx()))
	good.checkUnaffected(k)
	k.eventually("all damaged records are quarantined", func() bool {
		kept, err := os.ReadDir(k.Path("root", "quarantine"))
		return err == nil && len(kept) == len(lives)
	})
	listed := map[string]bool{}
	for _, p := range k.pods(nil) {
		listed[p.Id] = true
	}
	for _, c := range k.containers(nil) {
		listed[c.Id] = true
	}
	for n, l := range lives {
		what := fmt.Sprintf("%s, file %d", corruptions[n/4].name, n%4)
		if podLives := n%4 >= 2; listed[l.podID] != podLives {
			t.Errorf("%s: pod listed = %v, want %v", what, listed[l.podID], podLives)
		}
		if listed[l.containerID] {
			t.Errorf("%s: container listed = true, want false", what)
		}
		k.eventually(what+": the container's bundle and root filesystem are gone", func() bool {
			_, err := os.Stat(k.Path("run", "containers", l.containerID))
			_, rootfs := os.Stat(k.Path("root", "storage", "rootfs", l.containerID))
			return os.IsNotExist(err) && os.IsNotExist(rootfs)
		})
		for _, v := range verbs[:2] {
			k.ok(what+": "+v.name+" again", v.do(l, k.ctx()))
		}
	}
	k.ok("clear the quarantine", os.RemoveAll(k.Path("root", "quarantine")))
}
