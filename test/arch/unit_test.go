package arch

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

const unitFile = "../../contrib/systemd/podd.service"

// inherited are directives that containers would inherit or that would cut podd off from the node, see the unit's
// comment.
var inherited = map[string]string{
	"filters of system calls": "SystemCallFilter SystemCallArchitectures RestrictRealtime RestrictSUIDSGID " +
		"RestrictNamespaces RestrictAddressFamilies RestrictFileSystems LockPersonality MemoryDenyWriteExecute " +
		"ProtectClock ProtectHostname ProtectKernelModules ProtectKernelLogs NoNewPrivileges",
	"a mount namespace": "PrivateMounts PrivateTmp PrivateDevices PrivateUsers PrivateNetwork PrivateIPC ProtectSystem " +
		"ProtectHome ProtectProc ProcSubset ProtectControlGroups ProtectKernelTunables ReadOnlyPaths " +
		"InaccessiblePaths ReadWritePaths TemporaryFileSystem BindPaths RootDirectory RootImage MountFlags",
	"fewer capabilities":     "CapabilityBoundingSet User DynamicUser",
	"rules for devices":      "DeviceAllow DevicePolicy",
	"limits of all monitors": "MemoryHigh MemoryMax CPUQuota",
}

// TestUnitLeavesContainersAlone: hardening of podd's unit must not reach into containers.
func TestUnitLeavesContainersAlone(t *testing.T) {
	settings := unitSettings(t)
	for why, names := range inherited {
		for name := range strings.FieldsSeq(names) {
			if value, ok := settings[name]; ok {
				t.Errorf("%s has %s=%s, want it without: containers, their monitors or mounts would get %s", unitFile, name,
					value, why)
			}
		}
	}
	for name, want := range map[string]string{
		"KillMode": "process", "Delegate": "yes", "TasksMax": "infinity", "LimitCORE": "infinity", "NotifyAccess": "main",
	} {
		if got := settings[name]; got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
}

func unitSettings(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			settings[name] = value
		}
	}
	return settings
}

// TestUnitScore: systemd's exposure of the unit, in tenths, must not get worse. It is high, because a container runtime
// can bear little of what systemd proposes.
func TestUnitScore(t *testing.T) {
	const exposure = "96"
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	cmd := exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--no-pager", "--threshold="+exposure,
		unitFile)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze security, threshold %s: %v\n%s", exposure, err, out)
	}
}
