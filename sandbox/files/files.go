// Package files makes the files that the containers of a pod share: resolv.conf, hostname and hosts in /etc, and
// /dev/shm. It knows no record: the engine says for which config.
//
// The files in /etc are on a tmpfs for each pod because containers may write to them: on the node's /run they could
// fill it for all pods.
package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/sandbox/convert"
	"github.com/podd-project/podd/sandbox/record"
)

// The names in a pod's directory.
const (
	resolvConf = "resolv.conf"
	hostname   = "hostname"
	hosts      = "hosts"
	shm        = "shm"
)

// etcSize is how much containers can add to the files in /etc, in bytes. It is enough for any resolver configuration.
const etcSize = 1 << 20

// Files are the files of the pods of a node.
type Files struct {
	Layout  record.Layout
	Mounter Mounter
	// ShmSize is the size of a pod's /dev/shm in bytes.
	ShmSize int64
}

// Request has the inputs of a pod's files.
type Request struct {
	Config *cri.PodSandboxConfig
	// Hostname is the pod's, unless it uses the node's network.
	Hostname string
	// IPs are the pod's addresses.
	IPs []netip.Addr
	// MountLabel is the SELinux context of the files, "" for none.
	MountLabel string
}

// Write writes the files of a new pod and mounts the filesystems that hold them. Unmount and Remove undo it, even if it
// failed halfway.
func (f Files) Write(ctx context.Context, pod string, r Request) error {
	if err := os.MkdirAll(f.Layout.PodRun(pod), 0o700); err != nil {
		return err
	}
	if err := f.writeEtc(ctx, pod, r); err != nil {
		return err
	}
	if usesNodeShm(r.Config) {
		return nil
	}
	return f.Mounter.Mount(ctx, f.shm(pod), r.tmpfs("shm", f.ShmSize, shmMode))
}

func (f Files) writeEtc(ctx context.Context, pod string, r Request) error {
	contents, err := r.contents()
	if err != nil {
		return err
	}
	size := int64(etcSize)
	for _, c := range contents {
		size += int64(len(c.text))
	}
	dir := f.Layout.PodEtc(pod)
	if err := f.Mounter.Mount(ctx, dir, r.tmpfs("etc", size, 0o700)); err != nil {
		return err
	}
	uid, gid := convert.HostOwner(r.Config)
	for _, c := range contents {
		path := filepath.Join(dir, c.name)
		if err := writeFile(path, c.text, int(uid), int(gid)); err != nil {
			return fmt.Errorf("write %s: %w", c.name, err)
		}
	}
	return nil
}

// writeFile writes one file, owned by the pod's root user. Containers of any user read it; the directory above keeps
// other users of the node out.
func writeFile(path, text string, uid, gid int) error {
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	if uid == 0 && gid == 0 {
		return nil
	}
	return os.Chown(path, uid, gid)
}

func (r Request) tmpfs(name string, size int64, mode uint32) Tmpfs {
	uid, gid := convert.HostOwner(r.Config)
	return Tmpfs{Name: name, Size: size, Mode: mode, UID: uid, GID: gid, Label: r.MountLabel}
}

// Paths returns the files that the containers of a pod mount.
func (f Files) Paths(pod string, config *cri.PodSandboxConfig) spec.PodFiles {
	paths := spec.PodFiles{
		ResolvConf: f.etc(pod, resolvConf), Hostname: f.etc(pod, hostname), Hosts: f.etc(pod, hosts), Shm: f.shm(pod),
	}
	if usesNodeShm(config) {
		paths.Shm = "/dev/shm"
	}
	return paths
}

// etc returns the path of a file in /etc of a pod.
func (f Files) etc(pod, name string) string { return filepath.Join(f.Layout.PodEtc(pod), name) }

func (f Files) shm(pod string) string { return filepath.Join(f.Layout.PodRun(pod), shm) }

func usesNodeShm(config *cri.PodSandboxConfig) bool {
	return convert.NamespaceOptions(config).GetIpc() == cri.NamespaceMode_NODE
}

// Missing returns the names of the files that a pod should have and has not.
func (f Files) Missing(pod string, config *cri.PodSandboxConfig) []string {
	var missing []string
	p := f.Paths(pod, config)
	for _, path := range []string{p.ResolvConf, p.Hostname, p.Hosts, p.Shm} {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, filepath.Base(path))
		}
	}
	return missing
}

// Spoil makes a file of the pod Missing.
func (f Files) Spoil(pod string) error { return os.RemoveAll(f.etc(pod, hostname)) }

// IsMount reports whether Write mounts a filesystem at this name in a pod's directory.
func IsMount(name string) bool { return name == shm }

// Pods lists the pods that have files.
func (f Files) Pods() ([]string, error) {
	var pods []string
	for _, dir := range []string{f.Layout.PodRuns(), f.Layout.PodEtcs()} {
		names, err := record.Names(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		pods = append(pods, names...)
	}
	slices.Sort(pods)
	return slices.Compact(pods), nil
}

// Unmount unmounts what Write has mounted. It may be repeated.
func (f Files) Unmount(ctx context.Context, pod string) error {
	return errors.Join(f.Mounter.Unmount(ctx, f.shm(pod)), f.Mounter.Unmount(ctx, f.Layout.PodEtc(pod)))
}

// Remove removes the directories, which hold only plain files once everything in them is unmounted. It may be repeated.
func (f Files) Remove(pod string) error {
	if err := errors.Join(os.RemoveAll(f.Layout.PodEtc(pod)), os.RemoveAll(f.Layout.PodRun(pod))); err != nil {
		return fmt.Errorf("remove pod files: %w", err)
	}
	return nil
}
