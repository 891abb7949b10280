package snapshot

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/archive"
	"github.com/podd-project/podd/sandbox/convert"
)

// Images returns where the images of a container are in a directory that Stage has filled, for oci.CreateRequest.Image.
// Those of KindGVisor are of all containers.
func Images(staged, kind, container string) string {
	if kind == KindGVisor {
		return staged
	}
	return filepath.Join(staged, directoryOf(container), oci.DumpImages)
}

// Layer is the path of an archive: of a container's changes to its root filesystem, or of the files in /dev/shm.
type Layer string

// Rootfs returns the layer of a container in a directory that Stage has filled with KindCRIU.
func Rootfs(staged, container string) Layer {
	return Layer(filepath.Join(staged, directoryOf(container), archive.RootfsName))
}

// Read passes the content to f, and its size in bytes.
func (l Layer) Read(f func(content io.Reader, size int64) error) error {
	file, err := os.Open(string(l))
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return f(file, info.Size())
}

// shmName is an archive of the files in /dev/shm.
const shmName = "shm.tar"

// ShmArchive returns the archive of the files in /dev/shm in a directory that Stage has filled, "" if there is none.
func (m Manifest) ShmArchive(staged string) Layer {
	if !slices.ContainsFunc(m.Files, func(f File) bool { return f.Name == shmName }) {
		return ""
	}
	return Layer(filepath.Join(staged, shmName))
}

// KindOf returns the kind of the images of pods with a kernel of their own, or without.
func KindOf(ownKernel bool) string {
	if ownKernel {
		return KindGVisor
	}
	return KindCRIU
}

// directoryOf is the directory of a container in that of KindCRIU. CRI does not restrict the names of containers.
func directoryOf(container string) string { return "container-" + url.PathEscape(container) }

// checkCRIU checks the sorted names of the files of KindCRIU.
func (m Manifest) checkCRIU(names []string) error {
	refuse := func(why, name string) error {
		return fmt.Errorf("%w: the manifest lists %s: %.200q", errdefs.ErrFailedPrecondition, why, name)
	}
	if len(names) > maxFiles {
		return refuse(fmt.Sprintf("%d files, more than", len(names)), fmt.Sprint(maxFiles))
	}
	var dirs []string
	for _, c := range m.Containers {
		dirs = append(dirs, directoryOf(c.Name))
		if _, ok := slices.BinarySearch(names, directoryOf(c.Name)+"/"+archive.RootfsName); !ok {
			return refuse("no layer for the container", c.Name)
		}
	}
	for i, name := range names {
		if name == shmName && (i == 0 || names[i-1] != name) {
			continue
		}
		dir, file, _ := strings.Cut(name, "/")
		image, isImage := strings.CutPrefix(file, oci.DumpImages+"/")
		known := isImage && !strings.Contains(image, "/") ||
			slices.Contains([]string{archive.RootfsName, oci.DumpLog, oci.DumpStats}, file)
		switch {
		case !fs.ValidPath(name) || !known || !slices.Contains(dirs, dir):
			return refuse("a file that is not a checkpoint's", name)
		case i > 0 && names[i-1] == name:
			return refuse("a file twice", name)
		}
	}
	return nil
}

// Source is a container to save with CRIU.
type Source struct {
	Name, ID string
	// Diff writes the container's changes to its root filesystem, as a layer.
	Diff func(context.Context, io.Writer) error
}

// Dump has the runtime save the containers.
func (w *Writer) Dump(ctx context.Context, runtime oci.Dumper, containers []Source, shm archive.Shm) error {
	var dumped []oci.Dumped
	for _, c := range containers {
		dir := filepath.Join(w.ImagePath(), directoryOf(c.Name))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return fmt.Errorf("make a directory for the images of container %q: %w", c.Name, err)
		}
		dumped = append(dumped, oci.Dumped{ID: c.ID, Dir: dir, Room: w.room})
	}
	return runtime.Dump(ctx, dumped, func(ctx context.Context) error {
		for i, c := range containers {
			if err := archive.WriteRootfs(ctx, dumped[i].Dir, c.Diff); err != nil {
				return fmt.Errorf("root filesystem of container %q: %w", c.Name, err)
			}
		}
		return shm.Write(ctx, filepath.Join(w.ImagePath(), shmName))
	})
}

// CheckCRIU returns errdefs.ErrFailedPrecondition for a container that CRIU could save, but not restore in another pod.
func CheckCRIU(pod *cri.PodSandboxConfig, c *cri.ContainerConfig) error {
	pid := c.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid()
	uids, _ := convert.UserMappings(pod)
	for _, tt := range []struct {
		is   bool
		what string
	}{
		{pid != cri.NamespaceMode_CONTAINER && (pid != cri.NamespaceMode_POD || convert.SharesPID(pod)),
			"a PID namespace that is not its own"},
		{convert.HostNetwork(pod), "the network of the node"},
		{convert.NamespaceOptions(pod).GetIpc() != cri.NamespaceMode_POD, "the IPC namespace of the node"},
		{uids != nil, "a user namespace"},
	} {
		if tt.is {
			return fmt.Errorf("%w: container %q has %s, with which CRIU cannot restore it",
				errdefs.ErrFailedPrecondition, c.GetMetadata().GetName(), tt.what)
		}
	}
	return nil
}
