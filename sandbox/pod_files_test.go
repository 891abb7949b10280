package sandbox

import (
	"os"
	"syscall"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// In a user namespace the files that podd mounts into /etc belong to the pod's root, not to nobody.
func TestPodFilesBelongToThePodsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving files away needs root")
	}
	for _, c := range []struct {
		name     string
		userns   *cri.UserNamespace
		uid, gid uint32
	}{
		{"no user namespace", nil, 0, 0},
		{"the node's", &cri.UserNamespace{Mode: cri.NamespaceMode_NODE}, 0, 0},
		{"the pod's own", &cri.UserNamespace{Mode: cri.NamespaceMode_POD,
			Uids: []*cri.IDMapping{{HostId: 100_000, Length: 65_536}},
			Gids: []*cri.IDMapping{{HostId: 200_000, Length: 65_536}}}, 100_000, 200_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, _ := newEngine(t, newMachine(t))
			cfg := podConfig("web")
			cfg.Linux.SecurityContext.NamespaceOptions.UsernsOptions = c.userns
			id, err := e.RunPod(t.Context(), cfg, "")
			must(t, err)
			paths := e.files.Paths(id, cfg)
			for _, path := range []string{paths.ResolvConf, paths.Hostname, paths.Hosts} {
				var st syscall.Stat_t
				must(t, syscall.Stat(path, &st))
				if st.Uid != c.uid || st.Gid != c.gid || st.Mode&0o777 != 0o644 {
					t.Errorf("%s belongs to %d:%d with mode %o, want %d:%d with 644",
						path, st.Uid, st.Gid, st.Mode&0o777, c.uid, c.gid)
				}
			}
		})
	}
}
