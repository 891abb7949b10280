package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/sample"
)

// TestVMVolumes: containers of a pod that share volumes do not disturb each other, and the files are those of a node.
func TestVMVolumes(t *testing.T) {
	t.Parallel()
	k := start(t)
	for i, c := range []struct {
		name string
		test func(*vmVolumes)
	}{
		{"users come and go", (*vmVolumes).comeAndGo},
		{"either of two ends", (*vmVolumes).eitherEnds},
		{"equal inode numbers", (*vmVolumes).equalNumbers},
		{"one source twice", (*vmVolumes).twice},
		{"failed creations", (*vmVolumes).failedCreations},
		{"sockets, locks and watches", (*vmVolumes).together},
		{"owners", (*vmVolumes).owners},
		{"what programs expect", (*vmVolumes).files},
		{"free space", (*vmVolumes).freeSpace},
		{"many files", (*vmVolumes).manyFiles},
		{"files of a removed container", (*vmVolumes).released},
	} {
		if slow := i < 2 || c.name == "many files"; slow && !sample.Takes(3, t.Name(), c.name) {
			continue // minutes
		}
		t.Run(c.name, func(t *testing.T) {
			v := &vmVolumes{kubelet: k.sub(t)}
			v.cfg = v.podConfig()
			v.pod = v.runPod(v.cfg, vmHandler())
			c.test(v)
		})
	}
}

// vmVolumes is a pod in a virtual machine whose containers have volumes.
type vmVolumes struct {
	*kubelet
	cfg *cri.PodSandboxConfig
	pod string
}

// volume makes a directory of the host that everybody may write.
func (v *vmVolumes) volume(name string) string {
	v.Helper()
	dir := v.Path("volumes", v.cfg.Metadata.Name, name)
	v.ok("make a volume", os.MkdirAll(dir, 0o777))
	v.ok("make a volume", os.Chmod(dir, 0o777))
	return dir
}

func at(path string, m *cri.Mount) func(*cri.ContainerConfig) {
	return func(c *cri.ContainerConfig) {
		c.Mounts = append(c.Mounts, &cri.Mount{HostPath: m.HostPath, Readonly: m.Readonly, ContainerPath: path})
	}
}

func (v *vmVolumes) sleeper(mods ...func(*cri.ContainerConfig)) string {
	id, _ := v.runIn(v.pod, v.cfg, []string{"sleep", "10000"}, mods...)
	return id
}

// comeAndGo: what a container has of a volume is the same before, while and after others have it or a part of it, in
// whatever way, and however they end.
func (v *vmVolumes) comeAndGo() {
	dir := v.volume("shared")
	v.ok("make a subdirectory", os.Mkdir(filepath.Join(dir, "sub"), 0o777))
	v.ok("make a file", os.WriteFile(filepath.Join(dir, "sub", "file"), []byte("content"), 0o666))
	reader := v.sleeper(at("/v", &cri.Mount{HostPath: dir, Readonly: true}),
		at("/file", &cri.Mount{HostPath: filepath.Join(dir, "sub", "file"), Readonly: true}))
	writer := v.sleeper(at("/v", &cri.Mount{HostPath: dir}), at("/sub", &cri.Mount{HostPath: filepath.Join(dir, "sub")}))
	n := 0
	check := func(when string) {
		v.Helper()
		n++
		v.exec(writer, fmt.Sprintf("for f in /v/number /sub/number; do echo old >$f; rm $f; echo %d >$f; done", n))
		got, err := v.try(reader, "cat /v/number /file; (echo x >/v/x || echo x >/file) 2>&1")
		if want := fmt.Sprintf("%d\ncontent", n); err != nil || !strings.HasPrefix(got, want) ||
			!strings.Contains(got, "Read-only file system") {
			v.Errorf("%s, a reader has %q, %v, want %q and that it cannot write", when, got, err, want)
		}
		// The writer changed it through another share, of the subdirectory: the guest may remember the file for a second.
		want := fmt.Sprintf("%d\n", n)
		for deadline := time.Now().Add(3 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			got, err = v.try(reader, "cat /v/sub/number")
			if err == nil && got == want {
				break
			}
			if time.Now().After(deadline) {
				v.Errorf("%s, a reader has %q, %v in the subdirectory after 3 s, want %q", when, got, err, want)
				break
			}
		}
	}
	check("at first")
	for _, part := range []string{"", "sub", "sub/file"} {
		for _, readOnly := range []bool{false, true} {
			for _, end := range []string{"exits", "is killed"} {
				m := &cri.Mount{HostPath: filepath.Join(dir, part), Readonly: readOnly}
				other := v.sleeper(at("/other", m))
				check(fmt.Sprintf("while another one has %q, read-only %t", part, readOnly))
				v.stopContainer(other, map[string]int64{"exits": 1, "is killed": 0}[end])
				v.removeContainer(other)
				check(fmt.Sprintf("after another one with %q, read-only %t, %s", part, readOnly, end))
			}
		}
	}
	v.stopContainer(writer, 0)
	v.removeContainer(writer)
	if got := v.exec(reader, "cat /v/number"); got != fmt.Sprintf("%d\n", n) {
		v.Errorf("after the writer, the reader has %q, want %d", got, n)
	}
}

// eitherEnds: of two containers with a directory, or with it and a part of it, one may end, whichever came first: the
// other one still reads what the host writes, and writes if it may.
func (v *vmVolumes) eitherEnds() {
	n := 0
	for _, firstEnds := range []bool{true, false} {
		for _, part := range []string{"", "sub"} {
			for _, rights := range [][2]bool{{false, false}, {false, true}, {true, false}} {
				n++
				name := fmt.Sprintf("first ends %t, second has %q, read-only %v", firstEnds, part, rights)
				dir := v.volume(fmt.Sprintf("pair%d", n))
				v.ok("make a subdirectory", os.Mkdir(filepath.Join(dir, "sub"), 0o777))
				v.ok("open the subdirectory", os.Chmod(filepath.Join(dir, "sub"), 0o777))
				paths := [2]string{dir, filepath.Join(dir, part)}
				var ids [2]string
				for i, path := range paths {
					ids[i] = v.sleeper(at("/v", &cri.Mount{HostPath: path, Readonly: rights[i]}))
					v.exec(ids[i], "ls /v")
				}
				gone, left := 0, 1
				if !firstEnds {
					gone, left = 1, 0
				}
				v.stopContainer(ids[gone], 0)
				v.removeContainer(ids[gone])
				v.ok("write", os.WriteFile(filepath.Join(paths[left], "late"), []byte("text"), 0o666))
				got, err := v.try(ids[left], "cat /v/late && (echo w >/v/w) 2>/dev/null && cat /v/w || echo refused")
				want := map[bool]string{false: "textw\n", true: "textrefused\n"}[rights[left]]
				if err != nil || got != want {
					v.Errorf("%s: the other one has %q, %v, want %q", name, got, err, want)
				}
				v.stopContainer(ids[left], 0)
				v.removeContainer(ids[left])
			}
		}
	}
}

// equalNumbers: files of two volumes are different ones, though their inode numbers are equal, as in new tmpfs.
func (v *vmVolumes) equalNumbers() {
	if vmHandler() != "vm" {
		v.Skip("a guest of QEMU has one filesystem for all volumes")
	}
	var mods []func(*cri.ContainerConfig)
	for _, name := range []string{"a", "b"} {
		dir := v.volume(name)
		v.ok("mount a tmpfs", exec.Command("mount", "-t", "tmpfs", "numbers", dir).Run())
		v.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
		v.ok("make a file", os.WriteFile(filepath.Join(dir, "f"), []byte(name), 0o666))
		mods = append(mods, at("/"+name, &cri.Mount{HostPath: dir}))
	}
	for range 2 { // also when the first user has gone
		id := v.sleeper(mods...)
		const script = "stat -c %i /a/f /b/f | uniq | wc -l; echo b >/b/f; cp /a/f /b/f 2>&1; cat /b/f"
		if got, err := v.try(id, script); err != nil || got != "1\na" {
			v.Errorf("output = %q, %v, want one inode number and a copy of the other volume's file", got, err)
		}
		v.stopContainer(id, 0)
		v.removeContainer(id)
	}
}

// try runs a shell command in a container and returns its output.
func (v *vmVolumes) try(id, command string) (string, error) {
	r, err := v.Runtime.ExecSync(v.ctx(), &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", command}})
	return string(r.GetStdout()), err
}

// twice: a container can have a source at several paths, with different rights.
func (v *vmVolumes) twice() {
	dir := v.volume("twice")
	id := v.sleeper(at("/a", &cri.Mount{HostPath: dir, Readonly: true}), at("/b", &cri.Mount{HostPath: dir}),
		at("/c", &cri.Mount{HostPath: dir}))
	got := v.exec(id, "echo b >/b/f; (echo a >/a/f) 2>/dev/null || echo refused; cat /a/f; echo c >/c/f; cat /a/f /b/f")
	if want := "refused\nb\nc\nc\n"; got != want {
		v.Errorf("output = %q, want %q", got, want)
	}
}

// failedCreations leave what other containers have of the same volume.
func (v *vmVolumes) failedCreations() {
	dir := v.volume("failed")
	id := v.sleeper(at("/v", &cri.Mount{HostPath: dir}))
	fifo := filepath.Join(v.volume("other"), "socket")
	listenAndForget(v, fifo)
	for _, mods := range [][]func(*cri.ContainerConfig){
		{at("/v", &cri.Mount{HostPath: dir, Readonly: true}), at("/s", &cri.Mount{HostPath: fifo})},
		{at("/v", &cri.Mount{HostPath: dir}), at("/etc/hostname/x", &cri.Mount{HostPath: dir})},
	} {
		cfg := v.containerConfig([]string{"true"}, mods...)
		if other, err := v.tryCreate(v.pod, cfg, v.cfg); err == nil {
			_, err := v.Runtime.StartContainer(v.ctx(), &cri.StartContainerRequest{ContainerId: other})
			if err == nil {
				v.Errorf("container with mounts %v starts, want an error", cfg.Mounts)
			}
			v.removeContainer(other)
		}
		if got := v.exec(id, "echo still >/v/f && cat /v/f"); got != "still\n" {
			v.Errorf("after a creation that failed: %q, want still", got)
		}
	}
}

// listenAndForget makes a socket, which no machine can have as a volume.
func listenAndForget(v *vmVolumes, path string) {
	v.Helper()
	cmd := exec.Command("python3", "-c", "import socket,sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])", path)
	out, err := cmd.CombinedOutput()
	v.ok("make a socket: "+string(out), err)
}

// filetest builds test/filetest into a volume.
func (v *vmVolumes) filetest() *cri.Mount {
	v.Helper()
	dir := v.volume("bin")
	cmd := exec.Command("go", "build", "-o", dir+"/filetest", "../../test/filetest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	v.ok("build test/filetest: "+string(out), err)
	return &cri.Mount{HostPath: dir, Readonly: true}
}

// together: two containers meet in a volume: by sockets, locks and watches, also if one of them may only read.
func (v *vmVolumes) together() {
	dir, bin := v.volume("together"), v.filetest()
	for _, readOnly := range []bool{false, true} {
		server, _ := v.runIn(v.pod, v.cfg, []string{"sh", "-c", "cd /v && exec /bin/x/filetest serve"},
			at("/v", &cri.Mount{HostPath: dir}), at("/bin/x", bin))
		user := v.sleeper(at("/v", &cri.Mount{HostPath: dir, Readonly: readOnly}), at("/bin/x", bin))
		if got, err := v.try(user, "cd /v && /bin/x/filetest use"); err != nil || got != "ok\n" {
			v.Errorf("read-only %t: %q, %v, want ok", readOnly, got, err)
		}
		v.stopContainer(server, 0)
		v.removeContainer(server)
	}
}

// owners: what a process makes belongs to its user, in the root file system and in volumes.
func (v *vmVolumes) owners() {
	dir := v.volume("owners")
	id := v.sleeper(at("/v", &cri.Mount{HostPath: dir}), func(c *cri.ContainerConfig) {
		c.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: 999}
		c.Linux.SecurityContext.RunAsGroup = &cri.Int64Value{Value: 998}
	})
	const script = "umask 077; cd $0 && mkdir d && echo text >d/f && cat d/f && ln -s f d/l && mkfifo d/p && " +
		"stat -c '%u %g %a' d d/f d/l d/p"
	for _, path := range []string{"/v", "/tmp"} {
		got, err := v.try(id, strings.ReplaceAll(script, "$0", path))
		if want := "text\n999 998 700\n999 998 600\n999 998 777\n999 998 600\n"; err != nil || got != want {
			v.Errorf("in %s: %q, %v, want %q", path, got, err, want)
		}
	}
}

func (v *vmVolumes) files() {
	dir, bin := v.volume("files"), v.filetest()
	id := v.sleeper(at("/v", &cri.Mount{HostPath: dir}), at("/bin/x", bin))
	for _, path := range []string{"/v", "/tmp"} {
		if got, err := v.try(id, "cd "+path+" && /bin/x/filetest alone"); err != nil || got != "ok\n" {
			v.Errorf("in %s: %q, %v, want ok", path, got, err)
		}
	}
}

// freeSpace is that of the host's file systems.
func (v *vmVolumes) freeSpace() {
	id := v.sleeper(at("/v", &cri.Mount{HostPath: v.volume("space")}))
	for _, path := range []string{"/v", "/"} {
		var total int
		_, err := fmt.Sscan(v.exec(id, "stat -f -c '%b' "+path), &total)
		if err != nil || total < 1<<18 {
			v.Errorf("blocks of %s = %d, %v, want those of the host", path, total, err)
		}
	}
}

// manyFiles: a program may look at more files than one on the host may have open.
func (v *vmVolumes) manyFiles() {
	const directories, files = 70, 1000
	dir := v.volume("many")
	for d := range directories {
		sub := filepath.Join(dir, fmt.Sprint(d))
		v.ok("make a directory", os.Mkdir(sub, 0o777))
		for f := range files {
			v.ok("make a file", os.WriteFile(filepath.Join(sub, fmt.Sprint(f)), nil, 0o666))
		}
	}
	id := v.sleeper(at("/v", &cri.Mount{HostPath: dir}))
	const want = "70000\n"
	got, err := v.try(id, "find /v -type f -exec stat -c %u {} + | wc -l")
	if err != nil || got != want {
		v.Errorf("files = %q, %v, want %q", got, err, want)
	}
}

// released: the host's file systems are free of a container that is removed.
func (v *vmVolumes) released() {
	v.sleeper()
	dir := v.volume("released")
	v.ok("mount a file system", exec.Command("mount", "-t", "tmpfs", "released", dir).Run())
	v.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	id := v.sleeper(at("/v", &cri.Mount{HostPath: dir}))
	v.exec(id, "mkdir /v/d; touch /v/d/1 /v/d/2; ls -l /v/d")
	v.stopContainer(id, 0)
	v.removeContainer(id)
	v.eventually("nothing uses the volume", func() bool { return exec.Command("umount", dir).Run() == nil })
}
