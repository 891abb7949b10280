package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/containernetworking/cni/libcni"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/test/daemon"
)

// floor makes pods by hand: the fewest steps that give the same pod, with podd's own binaries and podd's own
// config.json.
type floor struct {
	podd          *daemon.Daemon
	dir, bin      string
	cni           *libcni.CNIConfig
	list          *libcni.NetworkConfigList
	handler, path string      // the OCI runtime
	lower         string      // the image's files
	spec          *specs.Spec // what podd gave the runtime for the same container
	made          atomic.Int64
}

// floorPod is a pod by hand: its namespaces and bundle on tmpfs, its files on disk.
type floorPod struct {
	id, run, disk string
	pidfd         int
}

func newFloor(repo string, d *daemon.Daemon) (*floor, error) {
	dir, err := os.MkdirTemp("/tmp", "bench-floor-")
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(repo, "bin")
	cni := libcni.NewCNIConfigWithCacheDir([]string{filepath.Join(bin, "cni")}, filepath.Join(dir, "cni"), nil)
	f := &floor{podd: d, dir: dir, bin: bin, cni: cni, lower: filepath.Join(dir, "lower")}
	if err := f.readNetwork(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := mountRun(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return f, nil
}

// readNetwork reads podd's network configuration, for the pods from now on.
func (f *floor) readNetwork() error {
	files, err := libcni.ConfFiles(f.podd.Path("net.d"), []string{".conflist"})
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no network configuration list in %s", f.podd.Path("net.d"))
	}
	f.list, err = libcni.ConfListFromFile(files[0])
	return err
}

func (f *floor) close() error { return errors.Join(unmountBelow(f.dir), os.RemoveAll(f.dir)) }

// copyFrom copies the files and config.json of a container of podd, which must run while the floor is measured: its
// pod's files are also mounted into the floor's containers.
func (f *floor) copyFrom(handler, container string) error {
	f.handler, f.path = handler, peerHost{tools: f.bin}.programPath(handler)
	data, err := os.ReadFile(f.podd.Path("run", "containers", container, "config.json"))
	if err != nil {
		return err
	}
	f.spec = &specs.Spec{}
	if err := json.Unmarshal(data, f.spec); err != nil {
		return err
	}
	if err := os.RemoveAll(f.lower); err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-a", f.spec.Root.Path, f.lower).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the image: %w: %s", err, out)
	}
	process := *f.spec.Process
	process.Args = []string{"true"}
	if data, err = json.Marshal(process); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(f.dir, "process.json"), data, 0o644)
}

func (f *floor) up(ctx context.Context, t *timer) (floorPod, error) {
	p := floorPod{id: fmt.Sprintf("floor%d-%d", os.Getpid(), f.made.Add(1)), pidfd: -1}
	p.run, p.disk = filepath.Join(f.dir, runName, p.id), filepath.Join(f.dir, p.id)
	err := t.run([]step{
		{"namespaces", p.pinNamespaces},
		{"CNI ADD", func() error {
			_, err := f.cni.AddNetworkList(ctx, f.list, p.attachment())
			return err
		}},
		{"overlay mount", func() error { return p.mountRootfs(f.lower) }},
		{"create", func() error { return f.create(&p) }},
		{"start", func() error { return f.run("start", p.id) }},
	})
	return p, err
}

func (f *floor) exec(p floorPod) error {
	return f.run("exec", "--process", filepath.Join(f.dir, "process.json"), p.id)
}

func (f *floor) down(ctx context.Context, p floorPod, t *timer) error {
	return t.run([]step{
		{"kill", func() error { return f.kill(p) }},
		{"delete", func() error { return f.run("delete", p.id) }},
		{"CNI DEL", func() error { return f.cni.DelNetworkList(ctx, f.list, p.attachment()) }},
		{"unmount", p.unmount},
	})
}

// run runs the OCI runtime once. If that fails, the error has the runtime's log.
func (f *floor) run(args ...string) error {
	log := filepath.Join(f.dir, runName, "runtime.log")
	cmd := exec.Command(f.path, append([]string{"--root", filepath.Join(f.dir, runName, f.handler), "--log", log},
		args...)...)
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(log)
		return fmt.Errorf("%s %s: %w: %s", f.handler, args[0], err, text)
	}
	return nil
}

func (f *floor) create(p *floorPod) error {
	data, err := json.Marshal(p.configure(f.spec))
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.inRun("config.json"), data, 0o644); err != nil {
		return err
	}
	pidFile := p.inRun("pid")
	if err := f.run("create", "--bundle", p.run, "--pid-file", pidFile, p.id); err != nil {
		return err
	}
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return err
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		return err
	}
	p.pidfd, err = unix.PidfdOpen(pid, 0)
	return err
}

// kill kills the container and waits for its exit.
func (f *floor) kill(p floorPod) error {
	defer unix.Close(p.pidfd)
	if err := f.run("kill", p.id, "KILL"); err != nil {
		return err
	}
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// configure returns the reference's config.json with the paths of this pod.
func (p *floorPod) configure(reference *specs.Spec) *specs.Spec {
	s, linux := *reference, *reference.Linux
	s.Root = &specs.Root{Path: p.onDisk("rootfs")}
	linux.CgroupsPath = filepath.Join(filepath.Dir(linux.CgroupsPath), p.id)
	linux.Namespaces = append([]specs.LinuxNamespace(nil), linux.Namespaces...)
	for i, ns := range linux.Namespaces {
		if ns.Path != "" {
			linux.Namespaces[i].Path = p.inRun(pinName(ns.Type))
		}
	}
	s.Linux = &linux
	return &s
}

func (p *floorPod) inRun(name string) string { return filepath.Join(p.run, name) }

func (p *floorPod) onDisk(name string) string { return filepath.Join(p.disk, name) }

// pinned are the namespaces that containers of one pod share, with their names in /proc.
var pinned = map[specs.LinuxNamespaceType]string{specs.NetworkNamespace: "net", specs.IPCNamespace: "ipc",
	specs.UTSNamespace: "uts"}

func pinName(t specs.LinuxNamespaceType) string { return pinned[t] }

// pinNamespaces creates namespaces on a thread of their own, which then ends, and mounts them on files.
func (p *floorPod) pinNamespaces() error {
	if err := errors.Join(os.Mkdir(p.run, 0o755), os.Mkdir(p.disk, 0o755)); err != nil {
		return err
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread must not run other goroutines
		done <- p.unshareAndPin()
	}()
	return <-done
}

func (p *floorPod) unshareAndPin() error {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	for _, name := range pinned {
		if err := os.WriteFile(p.inRun(name), nil, 0o644); err != nil {
			return err
		}
		if err := unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/%s", unix.Gettid(), name), p.inRun(name), "", unix.MS_BIND,
			""); err != nil {
			return fmt.Errorf("pin namespace %s: %w", name, err)
		}
	}
	return nil
}

func (p *floorPod) attachment() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: p.id, NetNS: p.inRun("net"), IfName: "eth0"}
}

func (p *floorPod) mountRootfs(lower string) error {
	for _, name := range []string{"upper", "work", "rootfs"} {
		if err := os.Mkdir(p.onDisk(name), 0o755); err != nil {
			return err
		}
	}
	options := []string{"lowerdir=" + lower, "upperdir=" + p.onDisk("upper"), "workdir=" + p.onDisk("work")}
	return unix.Mount("overlay", p.onDisk("rootfs"), "overlay", 0, strings.Join(options, ","))
}

func (p *floorPod) unmount() error {
	errs := []error{unix.Unmount(p.onDisk("rootfs"), 0)}
	for _, name := range pinned {
		errs = append(errs, unix.Unmount(p.inRun(name), 0))
	}
	return errors.Join(append(errs, os.RemoveAll(p.run), os.RemoveAll(p.disk))...)
}
