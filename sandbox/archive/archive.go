// Package archive writes the file that CheckpointContainer makes: a tar archive in the layout that checkpointctl reads
// (github.com/checkpoint-restore/checkpointctl, lib/metadata.go). CRI-O wants annotations in spec.dump to restore one.
//
//	config.dump      the container's properties, as JSON
//	spec.dump        its config.json
//	checkpoint/      the images of CRIU
//	rootfs-diff.tar  its changes of the root filesystem, as a layer of OCI, uncompressed
//	devshm-checkpoint.tar  the files in /dev/shm of the pod, if there are any
//	dump.log         the log of CRIU
//	stats-dump       the times that CRIU took
//
// The archive has the memory of the container, and so its secrets: only root can read it. It appears complete or not at
// all. The package starts and stops nothing; the engine calls it.
package archive

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/space"
)

// The names in an archive that this package writes itself.
const (
	configName = "config.dump"
	specName   = "spec.dump"
	// RootfsName is the layer.
	RootfsName = "rootfs-diff.tar"
	shmName    = "devshm-checkpoint.tar"
)

// maxFiles bounds the images of CRIU in an archive: it writes some for the container and a few for each process.
const maxFiles = 1 << 20

// Config is config.dump. The names of the fields are checkpointctl's.
type Config struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Image is the name by which the user chose the image, ImageRef its id.
	Image    string `json:"rootfsImage"`
	ImageRef string `json:"rootfsImageRef"`
	// ImageName is the name, too: other runtimes have the full name here.
	ImageName string `json:"rootfsImageName"`
	// Runtime is the runtime handler.
	Runtime        string    `json:"runtime"`
	CreatedAt      time.Time `json:"createdTime"`
	CheckpointedAt time.Time `json:"checkpointedTime"`
}

// Request describes an archive.
type Request struct {
	// Location is the path of the archive, which must not exist.
	Location string
	// Staging is a directory to make for the parts. It is removed at the end, but not if podd is killed.
	Staging string
	// Spec is the path of config.json.
	Spec   string
	Config Config
	// Dump saves the processes, as oci.Dumper does, and Diff writes the layer.
	Dump func(ctx context.Context, d oci.Dumped, frozen func(context.Context) error) error
	Diff func(ctx context.Context, w io.Writer) error
	Shm  Shm
	// Omit gets the reason if /dev/shm cannot be saved: the archive is without it, else containers could prevent one.
	Omit func(error)
}

// Shm is /dev/shm of a pod.
type Shm struct {
	// Unused reports whether there is nothing to save, Save writes an archive.
	Unused func() (bool, error)
	Save   func(context.Context, io.Writer) error
}

// Write writes the archive to a new file, if there is anything to save, see WriteBounded.
func (s Shm) Write(ctx context.Context, path string) error {
	if unused, err := s.Unused(); unused || err != nil {
		return err
	}
	return WriteBounded(ctx, path, s.Save)
}

// Save makes the archive. The error is errdefs.ErrAlreadyExists if the file exists, errdefs.ErrInvalidArgument if it
// cannot be there.
func Save(ctx context.Context, r Request) (err error) {
	out, err := create(r.Location)
	if err != nil {
		return err
	}
	defer out.close()
	if err := os.Mkdir(r.Staging, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.Staging)) }()
	room, err := space.Half(out.dir.Name())
	if err != nil {
		return err
	}
	d := oci.Dumped{ID: r.Config.ID, Dir: r.Staging, Room: room}
	err = r.Dump(ctx, d, func(ctx context.Context) error {
		r.Config.CheckpointedAt = time.Now()
		shm := filepath.Join(r.Staging, shmName)
		if err := r.Shm.Write(ctx, shm); err != nil && ctx.Err() == nil {
			r.Omit(errors.Join(err, os.RemoveAll(shm)))
		}
		return WriteRootfs(ctx, r.Staging, r.Diff)
	})
	if err != nil {
		return err
	}
	t := tar.NewWriter(writer{ctx, out.file})
	if err := errors.Join(r.add(t), t.Close(), os.RemoveAll(r.Staging)); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return out.commit()
}

// add adds all files to the archive.
func (r Request) add(t *tar.Writer) error {
	config, err := json.Marshal(r.Config)
	if err != nil {
		return err
	}
	if err := addData(t, configName, config); err != nil {
		return err
	}
	if err := addFile(t, specName, r.Spec); err != nil {
		return err
	}
	for _, name := range []string{oci.DumpLog, oci.DumpStats, RootfsName} {
		if err := addFile(t, name, filepath.Join(r.Staging, name)); err != nil {
			return err
		}
	}
	if err := addFile(t, shmName, filepath.Join(r.Staging, shmName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	images, err := os.ReadDir(filepath.Join(r.Staging, oci.DumpImages))
	if err != nil {
		return err
	}
	if len(images) > maxFiles {
		return fmt.Errorf("%w: CRIU has written %d files, at most %d are allowed", errdefs.ErrResourceExhausted,
			len(images), maxFiles)
	}
	// checkpointctl looks for the directory itself.
	h := &tar.Header{Typeflag: tar.TypeDir, Name: oci.DumpImages + "/", Mode: 0o700, Format: tar.FormatPAX}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	for _, image := range images {
		name := filepath.Join(oci.DumpImages, image.Name())
		if err := addFile(t, name, filepath.Join(r.Staging, name)); err != nil {
			return err
		}
	}
	return nil
}

func addData(t *tar.Writer, name string, data []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: int64(len(data)), Format: tar.FormatPAX}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := t.Write(data)
	return err
}

// addFile adds a regular file.
func addFile(t *tar.Writer, name, path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	h := &tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: info.Size(), ModTime: info.ModTime(), Format: tar.FormatPAX,
	}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(t, f, info.Size())
	return err
}

// WriteRootfs writes the layer that diff passes to the file RootfsName in dir, see WriteBounded.
func WriteRootfs(ctx context.Context, dir string, diff func(context.Context, io.Writer) error) error {
	return WriteBounded(ctx, filepath.Join(dir, RootfsName), diff)
}

// WriteBounded writes what content passes to a new file: at most half of the free space of its disk, because a
// container can have sparse files of any size, and more is to be written. More is errdefs.ErrResourceExhausted.
func WriteBounded(ctx context.Context, path string, content func(context.Context, io.Writer) error) error {
	half, err := space.Half(filepath.Dir(path))
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(content(ctx, &limited{f, half}), f.Close())
}

// limited fails instead of writing more than left bytes.
type limited struct {
	w    io.Writer
	left int64
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, fmt.Errorf("%w: the container's changes take more than half of the free disk space",
			errdefs.ErrResourceExhausted)
	}
	return l.w.Write(p)
}

// output is a file without a name until it is complete, so that a podd that is killed leaves nothing.
type output struct {
	dir, file *os.File
	name      string
}

// create checks that the location is free, and opens a file in its directory.
func create(location string) (*output, error) {
	dir, err := os.OpenFile(filepath.Dir(location), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: directory of the archive: %w", errdefs.ErrInvalidArgument, err)
	}
	o := &output{dir: dir, name: filepath.Base(location)}
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), o.name, &st, unix.AT_SYMLINK_NOFOLLOW); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fmt.Errorf("%w: %s exists", errdefs.ErrAlreadyExists, location)
		}
		dir.Close()
		return nil, err
	}
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) {
		err = fmt.Errorf("%w: the filesystem of %s has no unnamed files (O_TMPFILE): want a local one, such as ext4 or xfs",
			errdefs.ErrInvalidArgument, dir.Name())
	}
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("create the archive: %w", err)
	}
	o.file = os.NewFile(uintptr(fd), location)
	return o, nil
}

// commit makes the file durable and gives it its name.
func (o *output) commit() error {
	if err := o.file.Sync(); err != nil {
		return err
	}
	self := fmt.Sprintf("/proc/self/fd/%d", o.file.Fd())
	err := unix.Linkat(unix.AT_FDCWD, self, int(o.dir.Fd()), o.name, unix.AT_SYMLINK_FOLLOW)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %s", errdefs.ErrAlreadyExists, o.file.Name())
	}
	return errors.Join(err, o.dir.Sync())
}

func (o *output) close() {
	o.file.Close()
	o.dir.Close()
}

// writer writes until ctx ends.
type writer struct {
	ctx context.Context
	w   io.Writer
}

func (w writer) Write(p []byte) (int, error) {
	if err := context.Cause(w.ctx); err != nil {
		return 0, err
	}
	return w.w.Write(p)
}
