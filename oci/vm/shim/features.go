package shim

import "github.com/opencontainers/runtime-spec/specs-go/features"

// Features are the values that a container's specification may have. The mount options are those of the guest's kernel
// and runtime, and rro, which the host's kernel does.
func Features() features.Features {
	return features.Features{
		OCIVersionMin: "1.0.0", OCIVersionMax: "1.2.0",
		MountOptions: []string{
			"async", "atime", "bind", "defaults", "dev", "diratime", "dirsync", "exec", "noatime", "nodev", "nodiratime",
			"noexec", "norelatime", "nostrictatime", "nosuid", "private", "rbind", "relatime", "ro", "rprivate", "rro",
			"rslave", "rw", "slave", "strictatime", "suid", "sync", "tmpcopyup",
		},
	}
}
