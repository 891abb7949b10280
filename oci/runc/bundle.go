package runc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/process"
)

// bundle is the directory of one container, <RunDir>/<id>.
type bundle string

func (b bundle) config() string { return filepath.Join(string(b), "config.json") }
func (b bundle) record() string { return filepath.Join(string(b), "state.json") }

// started is a mark: the runtime's start verb has succeeded.
func (b bundle) started() string { return filepath.Join(string(b), "started") }

func (b bundle) exists() bool {
	_, err := os.Lstat(string(b))
	return err == nil
}

// record is what a later daemon needs to watch and end a container: state.json.
type record struct {
	Version int `json:"v"`
	// Boot is the kernel's boot id: after another boot no process of the record exists.
	Boot string `json:"boot"`
	// Init is the container's first process, Monitor its conmon.
	Init    process.Process `json:"init"`
	Monitor process.Process `json:"monitor"`
	// Sandbox is the container in whose sandbox, under a kernel of its own, this one runs, which may be itself;
	// empty for containers on the host's kernel. See guest.
	Sandbox string `json:"sandbox,omitempty"`
	// Cgroups are the container's own cgroup directories, by controller ("" for the unified hierarchy).
	Cgroups cgroups.Dirs `json:"cgroups,omitempty"`
	// PodOOMs is for the time when Cgroups are gone; only with systemd, which removes them.
	PodOOMs cgroups.OOMBaseline `json:"podOOMs,omitzero"`
}

const recordVersion = 1

// bundle returns the container's directory. The id becomes a path and an argument of other programs, so it
// is checked here, at the only door.
func (r *Runtime) bundle(id string) (bundle, error) {
	if err := CheckID(id); err != nil {
		return "", err
	}
	return bundle(filepath.Join(r.cfg.RunDir, id)), nil
}

func CheckID(id string) error {
	ok := id != "" && len(id) <= 200 && id[0] != '.' && id[0] != '-'
	for _, c := range id {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_.-", c))
	}
	if !ok {
		return fmt.Errorf("container id %.80q: %w", id, errdefs.ErrInvalidArgument)
	}
	return nil
}

// create makes the bundle with its config.json.
func (b bundle) create(s *specs.Spec) error { return CreateBundle(string(b), s) }

// CreateBundle makes dir a bundle with its config.json. Both are for root only: the spec holds the environment. The error is
// errdefs.ErrAlreadyExists when the directory is there.
func CreateBundle(dir string, s *specs.Spec) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return fmt.Errorf("create run directory: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("bundle %s: %w", dir, errdefs.ErrAlreadyExists)
		}
		return fmt.Errorf("create bundle: %w", err)
	}
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode config.json: %w", err)
	}
	if err := os.WriteFile(bundle(dir).config(), data, 0o600); err != nil {
		return fmt.Errorf("write config.json: %w", err)
	}
	return nil
}

// save writes the record.
func (b bundle) save(rec record) error {
	rec.Version, rec.Boot = recordVersion, process.BootID()
	return WriteRecord(b.record(), rec)
}

// load reads the record; errdefs.ErrNotFound when the container was never created completely. The processes
// of another boot are left out: their pids mean nothing now.
func (b bundle) load() (record, error) {
	var rec record
	if err := ReadRecord(b.record(), &rec); err != nil {
		return record{}, err
	}
	if rec.Version > recordVersion {
		return record{}, fmt.Errorf("container state of version %d: %w", rec.Version, errdefs.ErrFailedPrecondition)
	}
	if rec.Boot != process.BootID() {
		rec.Init, rec.Monitor = process.Process{}, process.Process{}
	}
	return rec, nil
}
