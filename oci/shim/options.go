package shim

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/pelletier/go-toml/v2"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/podd-project/podd/checkpoint"
)

// typePrefix is the prefix of the type URLs of JSON values, as containerd registers them.
const typePrefix = "types.containerd.io/opencontainers/runtime-spec/1/"

// anyJSON packs a part of an OCI specification.
func anyJSON(name string, v any) (*anypb.Any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", name, err)
	}
	return &anypb.Any{TypeUrl: typePrefix + name, Value: data}, nil
}

func anyProcess(p *specs.Process) (*anypb.Any, error) { return anyJSON("Process", p) }

func anyResources(r *specs.LinuxResources) (*anypb.Any, error) { return anyJSON("LinuxResources", r) }

// anyMessage packs a message under its bare name, as containerd does.
func anyMessage(m proto.Message) (*anypb.Any, error) {
	data, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode options: %w", err)
	}
	return &anypb.Any{TypeUrl: string(m.ProtoReflect().Descriptor().FullName()), Value: data}, nil
}

// options are sent to the shim with Create. runc's shim has a separate message; all others get the path of a file,
// and its text for those that can read it.
func (r *Runtime) options() (*anypb.Any, error) {
	runtime := ""
	if r.cfg.Runtime != "" {
		path, err := r.lookup(r.cfg.Runtime)
		if err != nil {
			return nil, err
		}
		runtime = path
	}
	name, version := shimName(r.cfg.Path)
	if name == "runc" {
		return r.runcOptions(runtime)
	}
	o := &runtimeoptions.Options{
		TypeUrl: "io.containerd." + name + "." + version + ".options", ConfigPath: r.cfg.ConfigPath,
	}
	if o.ConfigPath == "" {
		values := map[string]any{}
		if name == "runsc" {
			values = r.runscOptions(runtime)
		}
		for k, v := range r.cfg.Options {
			if _, ours := v.(map[string]any); ours && k == runscFlags {
				continue // merged already
			}
			values[k] = v
		}
		if len(values) > 0 {
			path, text, err := r.writeOptions(values)
			if err != nil {
				return nil, err
			}
			o.ConfigPath, o.ConfigBody = path, text
		}
	}
	return anyMessage(o)
}

// runtimeRoot is where the runtime below the shim keeps its state.
func (r *Runtime) runtimeRoot() string { return filepath.Join(r.cfg.Root, "state") }

// runscFlags is the option of gVisor's shim that holds the flags of runsc.
const runscFlags = "runsc_config"

// runscOptions are the options of gVisor's shim, with defaults for those that the configuration does not set.
func (r *Runtime) runscOptions(runtime string) map[string]any {
	// Without it, runsc pins one network namespace for all its helper processes below root, forever.
	flags := map[string]any{"gofer-network-namespace": "new"}
	if r.cfg.SystemdCgroup {
		flags["systemd-cgroup"] = "true"
	}
	if given, ok := r.cfg.Options[runscFlags].(map[string]any); ok {
		maps.Copy(flags, given)
	}
	values := map[string]any{"root": r.runtimeRoot(), runscFlags: flags}
	if runtime != "" {
		values["binary_name"] = runtime
	}
	return values
}

func (r *Runtime) runcOptions(runtime string) (*anypb.Any, error) {
	o := &options.Options{}
	if len(r.cfg.Options) > 0 {
		// In containerd's configuration they have the names of the message's JSON fields, with an upper-case first
		// letter.
		values := map[string]any{}
		for k, v := range r.cfg.Options {
			values[strings.ToLower(k[:min(len(k), 1)])+k[min(len(k), 1):]] = v
		}
		data, err := json.Marshal(values)
		if err != nil {
			return nil, fmt.Errorf("options: %w", err)
		}
		if err := protojson.Unmarshal(data, o); err != nil {
			return nil, fmt.Errorf("options: %w", err)
		}
	}
	o.Root, o.SystemdCgroup = r.runtimeRoot(), r.cfg.SystemdCgroup
	if runtime != "" {
		o.BinaryName = runtime
	}
	return anyMessage(o)
}

// writeOptions writes the options to a file, for shims that read one.
func (r *Runtime) writeOptions(values map[string]any) (path string, text []byte, err error) {
	if text, err = toml.Marshal(values); err != nil {
		return "", nil, fmt.Errorf("options: %w", err)
	}
	path = filepath.Join(r.cfg.Root, "options.toml")
	if have, err := os.ReadFile(path); err == nil && string(have) == string(text) {
		return path, text, nil
	}
	if err := os.MkdirAll(r.cfg.Root, 0o700); err != nil {
		return "", nil, fmt.Errorf("options: %w", err)
	}
	if err := checkpoint.WriteFile(path, text, 0o600); err != nil {
		return "", nil, fmt.Errorf("options: %w", err)
	}
	return path, text, nil
}

// shimName is the name and version in containerd-shim-<name>-<version>.
func shimName(path string) (name, version string) {
	rest, ok := strings.CutPrefix(filepath.Base(path), "containerd-shim-")
	if !ok {
		return "unknown", "v1"
	}
	i := strings.LastIndexByte(rest, '-')
	if i <= 0 {
		return rest, "v1"
	}
	return rest[:i], rest[i+1:]
}
