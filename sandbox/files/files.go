// Package files makes the files that the containers of a pod share: resolv.conf, hostname and hosts in /etc, and
// /dev/shm. It knows no record: the engine says in which directory, and for which config.
package files

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/sandbox/convert"
)

// The names in a pod's directory.
const (
	resolvConf = "resolv.conf"
	hostname   = "hostname"
	hosts      = "hosts"
	shm        = "shm"
)

// Request is what a pod's files are made from.
type Request struct {
	// Dir is the pod's directory, which Write makes if need be: only root may enter it.
	Dir    string
	Config *cri.PodSandboxConfig
	// Hostname is the pod's, unless it uses the node's network.
	Hostname string
	// IPs are the pod's addresses.
	IPs []netip.Addr
	// MountLabel is the SELinux context of /dev/shm, "" for none.
	MountLabel string
}

// Write writes resolv.conf, hostname and hosts, and mounts the pod's /dev/shm.
func Write(ctx context.Context, mounter Mounter, r Request) error {
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return err
	}
	uids, gids := convert.UserMappings(r.Config)
	uid, gid := convert.HostID(uids), convert.HostID(gids)
	for _, f := range []struct {
		name    string
		content func() (string, error)
	}{
		{resolvConf, r.resolvConf}, {hostname, r.hostnameLine}, {hosts, r.hosts},
	} {
		text, err := f.content()
		if err != nil {
			return fmt.Errorf("make %s: %w", f.name, err)
		}
		if err := writeFile(filepath.Join(r.Dir, f.name), text, int(uid), int(gid)); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	if usesNodeShm(r.Config) {
		return nil
	}
	return mounter.Mount(ctx, filepath.Join(r.Dir, shm), uid, gid, r.MountLabel)
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

// Paths returns the files in dir that the containers of a pod mount.
func Paths(dir string, config *cri.PodSandboxConfig) spec.PodFiles {
	paths := spec.PodFiles{
		ResolvConf: filepath.Join(dir, resolvConf), Hostname: filepath.Join(dir, hostname),
		Hosts: filepath.Join(dir, hosts), Shm: filepath.Join(dir, shm),
	}
	if usesNodeShm(config) {
		paths.Shm = "/dev/shm"
	}
	return paths
}

func usesNodeShm(config *cri.PodSandboxConfig) bool {
	return convert.NamespaceOptions(config).GetIpc() == cri.NamespaceMode_NODE
}

// Missing returns the names of the files that a pod should have in dir and has not.
func Missing(dir string) []string {
	var missing []string
	for _, name := range []string{resolvConf, hostname, hosts} {
		if _, err := os.Stat(filepath.Join(dir, name)); os.IsNotExist(err) {
			missing = append(missing, name)
		}
	}
	return missing
}

// IsMount reports whether Write mounts a filesystem at this name in a pod's directory.
func IsMount(name string) bool { return name == shm }

// Unmount unmounts what Write has mounted. It may be repeated.
func Unmount(ctx context.Context, mounter Mounter, dir string) error {
	return mounter.Unmount(ctx, filepath.Join(dir, shm))
}

// Remove removes dir, which holds only plain files once everything in it is unmounted.
func Remove(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove pod files: %w", err)
	}
	return nil
}
