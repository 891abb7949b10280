package lazy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image/layers"
	"github.com/podd-project/podd/image/rootfs"
)

// Names in the directory of a layer: containers-storage.conf(5), additionallayerstores.
const (
	filesName = "diff" // the layer's root directory
	infoName  = "info" // JSON
	useName   = "use"  // to create it tells the store that the layer is used
)

// maxInfo bounds the file info, in bytes.
const maxInfo = 64 << 10

// mountPoint is that of an additional layer store.
type mountPoint struct{ *os.File }

// openRoot fails with errdefs.ErrUnavailable if no store is mounted.
func openRoot(dir string) (*mountPoint, error) {
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, errdefs.ErrUnavailable)
	}
	var st unix.Statx_t
	err = unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st)
	if err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		err = errors.New("nothing is mounted there")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w: %w", dir, err, errdefs.ErrUnavailable), f.Close())
	}
	return &mountPoint{f}, nil
}

// open opens a file of a layer. The file is in the store: no link and no other mount is followed.
func (r *mountPoint) open(l layers.Lazy, name string, flags uint64, mode uint64) (*os.File, error) {
	const retries = 10 // EAGAIN: something was renamed
	full := path.Join(l.Path(), name)
	how := unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC | unix.O_NOFOLLOW, Mode: mode,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	}
	for range retries {
		fd, err := unix.Openat2(int(r.Fd()), full, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), full), nil
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		default:
			return nil, &os.PathError{Op: "open", Path: path.Join(r.Name(), full), Err: err}
		}
	}
	return nil, &os.PathError{Op: "open", Path: path.Join(r.Name(), full), Err: unix.EAGAIN}
}

func (r *mountPoint) openFiles(l layers.Lazy) (*os.File, error) {
	return r.open(l, filesName, unix.O_PATH|unix.O_DIRECTORY, 0)
}

// lookUp looks for a layer, compares the store's description of it, and tells the store that it is used. The store
// fetches the table of contents at the first access to the files, and knows the content of info only then.
func (r *mountPoint) lookUp(l layers.Wanted) answer {
	files, err := r.openFiles(l.Lazy)
	if err != nil {
		return failedAnswer(err)
	}
	defer files.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(files.Fd()), &st); err != nil {
		return failedAnswer(err)
	}
	if err := r.compare(l); err != nil {
		return failedAnswer(err)
	}
	r.use(l.Lazy)
	found := l.Lazy
	found.Mode, found.UID, found.GID = st.Mode, int(st.Uid), int(st.Gid)
	return answer{Found: &found}
}

// layerInfo is the store's description of a layer, as far as storage.Layer has its fields.
type layerInfo struct {
	CompressedDigest   digest.Digest `json:"compressed-diff-digest"`
	CompressedSize     int64         `json:"compressed-size"`
	UncompressedDigest digest.Digest `json:"diff-digest"`
	TOCDigest          digest.Digest `json:"toc-digest"`
	Flags              struct {
		DiffID digest.Digest `json:"expected-layer-diffid"`
	} `json:"flags"`
}

// compare returns an error if the store means another layer. It must name the table of contents; it may leave out the
// rest.
func (r *mountPoint) compare(l layers.Wanted) error {
	info, err := r.info(l.Lazy)
	if err != nil {
		return err
	}
	if info.TOCDigest != l.TOC {
		return fmt.Errorf("the store has a layer with the table of contents %.100q, not %s", info.TOCDigest, l.TOC)
	}
	for _, c := range []struct{ name, got, want string }{
		{"digest", info.CompressedDigest.String(), l.Blob.String()},
		{"digest of the tar", info.UncompressedDigest.String(), l.DiffID.String()},
		{"digest of the tar", info.Flags.DiffID.String(), l.DiffID.String()},
		{"size", sizeText(info.CompressedSize), sizeText(l.Size)},
	} {
		if c.got != "" && c.got != c.want {
			return fmt.Errorf("the store has a layer with the %s %.100q, not %s", c.name, c.got, c.want)
		}
	}
	return nil
}

// sizeText returns "" for a size that is not known.
func sizeText(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func (r *mountPoint) info(l layers.Lazy) (*layerInfo, error) {
	file, err := r.open(l, infoName, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is not a regular file", file.Name()))
	}
	raw, err := io.ReadAll(io.LimitReader(file, maxInfo+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxInfo {
		return nil, fmt.Errorf("%s has more than %d bytes", file.Name(), maxInfo)
	}
	var info layerInfo
	if err := json.Unmarshal(raw, &info); err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name(), err)
	}
	return &info, nil
}

// use tells the store that a layer is used. A store that counts does not make the file.
func (r *mountPoint) use(l layers.Lazy) {
	file, err := r.open(l, useName, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err == nil {
		_ = errors.Join(file.Close(), unix.Unlinkat(int(r.Fd()), path.Join(l.Path(), useName), 0)) // it does not count
	}
}

// release tells the store that a layer is no longer used: it counts the attempt to remove the directory.
func (r *mountPoint) release(l layers.Lazy) {
	_ = unix.Unlinkat(int(r.Fd()), l.Path(), unix.AT_REMOVEDIR) // fails by design
}

// check reports whether the store serves a layer: its root directory can be read.
func (r *mountPoint) check(l layers.Lazy) answer {
	files, err := r.open(l, filesName, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return failedAnswer(err)
	}
	defer files.Close()
	if _, err := files.ReadDir(1); err != nil && !errors.Is(err, io.EOF) {
		return failedAnswer(err)
	}
	return answer{}
}

// mount is a filesystem with layers of the store.
type mount struct {
	Dir string
	// Lowers are the layers' directories, Lazy those of the store, nil for others; both top first.
	Lowers   []string
	Lazy     []*layers.Lazy
	Writable bool
	Label    string
}

// do mounts the filesystem. The layers stay those that were opened, whatever the store does in the meantime.
func (m *mount) do(root *mountPoint) answer {
	o := rootfs.Overlay{Dir: m.Dir, Lowers: slices.Clone(m.Lowers), Writable: m.Writable, Label: m.Label}
	for i, l := range m.Lazy {
		if l == nil {
			continue
		}
		files, err := root.openFiles(*l)
		if err != nil {
			return failedAnswer(err)
		}
		defer files.Close()
		o.Lowers[i] = fmt.Sprintf("/proc/self/fd/%d", files.Fd())
	}
	if err := o.Mount(); err != nil {
		return answer{Error: err.Error()}
	}
	return answer{}
}
