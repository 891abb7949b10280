package rootfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"unsafe"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// quota bounds the size of writable layers by project quotas of ext4 and XFS. Each layer has a project; its id is in
// the record of the filesystem.
type quota struct {
	dir string // a directory of the filesystem

	mu   sync.Mutex
	last uint32 // the newest id
}

// Project ids of podd. /etc/projid has an administrator's small ones, and the kubelet counts from 1048577.
const (
	firstProject = 1 << 30
	projects     = 1 << 30
)

// Ioctls and flags of linux/fs.h, commands of linux/quota.h and linux/dqblk_xfs.h.
const (
	fsGetXattr      = 0x801c581f // FS_IOC_FSGETXATTR
	fsSetXattr      = 0x401c5820 // FS_IOC_FSSETXATTR
	projectInherit  = 0x200      // FS_XFLAG_PROJINHERIT
	getQuota        = 0x800007<<8 | projectQuota
	setQuota        = 0x800008<<8 | projectQuota
	getState        = 0x5805<<8 | projectQuota // Q_XGETQSTAT
	projectQuota    = 2                        // PRJQUOTA
	projectEnforced = 1 << 5                   // FS_QUOTA_PDQ_ENFD
	limits          = 1 | 4                    // QIF_LIMITS: blocks and inodes
	quotaBlock      = 1024
)

// fileAttributes are struct fsxattr.
type fileAttributes struct {
	Flags, ExtentSize, Extents, Project, CowExtentSize uint32
	_                                                  [8]byte
}

// projectUsage is struct if_dqblk. Limits are in units of quotaBlock, Space is in bytes.
type projectUsage struct {
	HardLimit, SoftLimit, Space, InodeHardLimit, InodeSoftLimit, Inodes, Time, InodeTime uint64
	Valid                                                                                uint32
	_                                                                                    uint32
}

// CheckQuota returns nil if the filesystem of dir enforces project quotas; otherwise errdefs.ErrFailedPrecondition.
func CheckQuota(dir string) error {
	var state [256]byte // struct fs_quota_stat and more
	err := quotactl(dir, getState, 0, unsafe.Pointer(&state))
	if err == nil && binary.NativeEndian.Uint16(state[2:])&projectEnforced == 0 {
		err = errors.New("accounting only")
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("image.max_writable_bytes needs project quotas on the filesystem of %s (ext4 with the feature "+
		"\"project\", or XFS, mounted with prjquota; Linux 5.14): %w: %w", dir, err, errdefs.ErrFailedPrecondition)
}

// newProject returns an unused id.
func (q *quota) newProject() (uint32, error) {
	if err := CheckQuota(q.dir); err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last == 0 {
		q.last = firstProject + rand.Uint32N(projects)
	}
	for range 10_000 {
		q.last = firstProject + (q.last+1)%projects
		u, err := q.usage(q.last)
		if err != nil {
			return 0, err
		}
		if u == (projectUsage{Valid: u.Valid}) {
			return q.last, nil
		}
	}
	return 0, errors.New("project quotas: found no unused project id")
}

// usage returns the usage and limits of a project; zero if there is none.
func (q *quota) usage(project uint32) (projectUsage, error) {
	var u projectUsage
	err := quotactl(q.dir, getQuota, project, unsafe.Pointer(&u))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) { // XFS
		return projectUsage{}, nil
	}
	return u, err
}

// Each project may have a file for each bytesPerFile of its limit, and minFiles: empty files could take all inodes.
const (
	bytesPerFile = 4096
	minFiles     = 1000
)

// limit sets how many bytes the files of a project may have; 0: no limit, which frees the id.
func (q *quota) limit(project uint32, bytes int64) error {
	u := projectUsage{Valid: limits}
	if bytes > 0 {
		u.HardLimit = (uint64(bytes) + quotaBlock - 1) / quotaBlock
		u.InodeHardLimit = max(uint64(bytes)/bytesPerFile, minFiles)
	}
	return quotactl(q.dir, setQuota, project, unsafe.Pointer(&u))
}

func quotactl(dir string, cmd int, project uint32, arg unsafe.Pointer) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), uintptr(cmd), uintptr(project), uintptr(arg), 0, 0)
	if errno != 0 {
		return os.NewSyscallError("quotactl_fd", errno)
	}
	return nil
}

// setProject makes the files that will be created below an empty directory part of a project. The overlay renames
// between its directories, which must therefore have the same one.
func setProject(dir string, project uint32) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	var a fileAttributes
	for _, step := range []int{fsGetXattr, fsSetXattr} {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), uintptr(step), uintptr(unsafe.Pointer(&a)))
		if errno != 0 {
			return &os.PathError{Op: "set project of", Path: dir, Err: errno}
		}
		a.Flags |= projectInherit
		a.Project = project
	}
	return nil
}
