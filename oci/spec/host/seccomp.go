package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/moby/profiles/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// profileLimit is the size in bytes of the largest seccomp profile that is read: what fits a ConfigMap.
const profileLimit = 1 << 20

// SeccompProfile loads the profile of a Localhost request, and returns nil for every other. The reference is an
// absolute path, as the kubelet sends it, or one below root. The file is JSON in the OCI's format or in Docker's, which
// adds conditions to rules. Errors: ErrNotFound if it does not exist, ErrInvalidArgument if it is not a profile.
func SeccompProfile(p *cri.SecurityProfile, root string) (*seccomp.Seccomp, error) {
	if p.GetProfileType() != cri.SecurityProfile_Localhost {
		return nil, nil
	}
	path := p.GetLocalhostRef()
	if !filepath.IsAbs(path) {
		if !filepath.IsLocal(path) {
			return nil, invalid("seccomp profile %q is not a path below %s", path, root)
		}
		path = filepath.Join(root, path)
	}
	profile, err := loadProfile(path)
	if err != nil {
		return nil, fmt.Errorf("seccomp profile %s: %w", path, err)
	}
	return profile, nil
}

func loadProfile(path string) (*seccomp.Seccomp, error) {
	found, err := os.OpenFile(path, unix.O_PATH, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the host has no such file", errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	defer found.Close()
	file, err := openRegular(found, profileLimit)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, profileLimit))
	if err != nil {
		return nil, err
	}
	return parseProfile(data)
}

// parseProfile refuses profiles that a runtime would refuse later with a less clear error, or misread.
func parseProfile(data []byte) (*seccomp.Seccomp, error) {
	var p seccomp.Seccomp
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, invalid("it is not a profile in JSON: %v", err)
	}
	if !action(p.DefaultAction) {
		return nil, invalid("unknown defaultAction %q", p.DefaultAction)
	}
	if len(p.Architectures) > 0 && len(p.ArchMap) > 0 {
		return nil, invalid("it has both architectures and archMap")
	}
	for i, call := range p.Syscalls {
		switch {
		case call == nil:
			return nil, invalid("rule %d is null", i)
		case !action(call.Action):
			return nil, invalid("rule %d has the unknown action %q", i, call.Action)
		//lint:ignore SA1019 profiles were written so before 2016
		case (call.Name == "") == (len(call.Names) == 0):
			return nil, invalid("rule %d needs either a name or names of system calls", i)
		}
	}
	return &p, nil
}

func action(a specs.LinuxSeccompAction) bool {
	return slices.Contains([]specs.LinuxSeccompAction{
		specs.ActKill, specs.ActKillProcess, specs.ActKillThread, specs.ActTrap, specs.ActErrno, specs.ActTrace,
		specs.ActAllow,
		specs.ActLog, specs.ActNotify,
	}, a)
}
