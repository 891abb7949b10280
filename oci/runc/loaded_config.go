package runc

import (
	"encoding/json"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/runc/starter"
)

// loadedConfig is the part of config.json with the further tasks of a runtime when it starts and deletes a container.
type loadedConfig struct {
	Hooks specs.Hooks `json:"hooks"`
	Linux struct {
		CgroupsPath string          `json:"cgroupsPath"`
		IntelRdt    json.RawMessage `json:"intelRdt"`
	} `json:"linux"`
}

// withoutRuntime returns the tasks that podd takes from the runtime for the new container: how it is started, and which
// cgroup is removed. Both are empty for a sandbox with its own kernel, and for a restored container.
//
// It reads config.json after the runtime has: wrappers of runtimes add hooks to it. One that passes another bundle to
// the runtime is not seen.
func (r *Runtime) withoutRuntime(b bundle, rec record) (starter.Method, string) {
	var c loadedConfig
	data, err := os.ReadFile(b.Config())
	if err != nil || json.Unmarshal(data, &c) != nil || rec.Image != "" {
		return "", ""
	}
	return r.startMethod(c), r.ownedCgroup(c, rec)
}
