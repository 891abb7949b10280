package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/subprocess"
)

// DefaultAppArmor is the name of the profile of RuntimeDefault.
const DefaultAppArmor = "podd-default"

// appArmorRemove takes the name of a profile to unload.
const appArmorRemove = "/sys/kernel/security/apparmor/.remove"

// maxParserOutput is how many bytes of an error of apparmor_parser are kept.
const maxParserOutput = 4 << 10

// appArmorProfiles lists the loaded profiles as "name (mode)", one a line.
const appArmorProfiles = "/sys/kernel/security/apparmor/profiles"

// LoadAppArmor loads podd's default profile into the kernel, replacing an older one, and returns its name; "" when
// AppArmor is off. It needs apparmor_parser.
func LoadAppArmor(ctx context.Context) (string, error) {
	if !appArmorOn() {
		return "", nil
	}
	load := exec.Command("apparmor_parser", "--replace", "--skip-cache")
	load.Stdin = strings.NewReader(defaultProfile)
	if _, stderr, err := subprocess.Run(ctx, load, maxParserOutput); err != nil {
		return "", fmt.Errorf("load the AppArmor profile %s: %w: %s", DefaultAppArmor, err, bytes.TrimSpace(stderr))
	}
	return DefaultAppArmor, nil
}

// UnloadAppArmor removes podd's default profile from the kernel. Processes that have it become unconfined, so there
// must be no containers.
func UnloadAppArmor() error {
	if !appArmorOn() {
		return nil
	}
	err := os.WriteFile(appArmorRemove, []byte(DefaultAppArmor), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unload the AppArmor profile %s: %w", DefaultAppArmor, err)
	}
	return nil
}

// CheckAppArmor checks that a Localhost profile is loaded; ErrNotFound if it is not. The runtime's own error comes
// later, at the start of the container, and is less clear.
func CheckAppArmor(name string) error {
	if !appArmorOn() {
		return unsupported("the AppArmor profile %q is requested, AppArmor is off on this machine", name)
	}
	data, err := os.ReadFile(appArmorProfiles)
	if err != nil {
		return fmt.Errorf("list AppArmor profiles: %w", err)
	}
	if !loaded(string(data), name) {
		return fmt.Errorf("%w: no AppArmor profile %q is loaded on this machine", errdefs.ErrNotFound, name)
	}
	return nil
}

func loaded(profiles, name string) bool {
	for line := range strings.Lines(profiles) {
		line = strings.TrimSpace(line)
		if i := strings.LastIndex(line, " ("); i >= 0 && line[:i] == name {
			return true
		}
	}
	return false
}

// defaultProfile denies a container's root what namespaces do not isolate: writing to kernel interfaces that are not
// namespaced, mounting, and tracing processes under other profiles. A deny rule has no exceptions, so the denied trees
// are listed one by one, without those that containers may use (/proc/sys/net, /proc/sys/kernel/shm*,
// /proc/sys/fs/mqueue, /sys/fs/cgroup).
const defaultProfile = `#include <tunables/global>

profile ` + DefaultAppArmor + ` flags=(attach_disconnected,mediate_deleted) {
  #include <abstractions/base>

  capability,
  file,
  network,
  umount,
  deny mount,

  signal (receive) peer=unconfined,
  signal (receive) peer=runc,
  signal (receive) peer=crun,
  signal (send,receive) peer=` + DefaultAppArmor + `,
  ptrace (trace,read,tracedby,readby) peer=` + DefaultAppArmor + `,

  deny @{PROC}/* w,
  deny @{PROC}/{kcore,kmem,mem,sysrq-trigger} rwklx,
  deny @{PROC}/{acpi,asound,bus,driver,fs,irq,scsi}/** wklx,
  deny @{PROC}/sys/{abi,crypto,debug,dev,sunrpc,user,vm}/** wklx,
  deny @{PROC}/sys/kernel/{[^s],s[^h],sh[^m]}** wklx,
  deny @{PROC}/sys/fs/{[^m],m[^q]}** wklx,

  deny /sys/{block,bus,class,dev,devices,hypervisor,kernel,module,power}/** wklx,
  deny /sys/fs/{bpf,btrfs,erofs,ext4,f2fs,fuse,pstore,resctrl,selinux,smackfs,xfs}/** wklx,
  deny /sys/{firmware,kernel/security,devices/virtual/powercap}/** rwklx,
}
`
