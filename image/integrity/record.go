package integrity

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/podd-project/podd/checkpoint"
)

// record has the corrupt layers and whether all layers must be verified.
type record struct {
	path string

	saving sync.Mutex // serialises save; held during I/O on purpose, readers do not take it

	mu    sync.Mutex
	state state
	// versions counts, per layer, how often its files were replaced: a verification of older files is void.
	versions map[string]int
}

// state is the content of the file.
type state struct {
	// Boot is the boot id under which the store was opened; "" if it was closed properly since.
	Boot string `json:"boot,omitempty"`
	// Pending: the machine crashed or lost power, and not every layer was verified since.
	Pending bool `json:"pending,omitempty"`
	// Corrupt maps layer ids to the reason.
	Corrupt map[string]string `json:"damaged,omitempty"`
	// Unverifiable maps the ids of layers that came from a blob with the right digest, but failed verification, to the
	// reason.
	Unverifiable map[string]string `json:"trusted,omitempty"`
}

// openRecord loads the file and records that the store is open. Without a boot id no power loss is ever detected.
// The value is usable even if the error, of writing the file, is not nil.
func openRecord(path, boot string) (*record, error) {
	in := &record{path: path, versions: map[string]int{}}
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &in.state)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		in.state = state{}
	case err != nil: // unreadable: verify everything
		in.state = state{Pending: true}
	}
	if in.state.Boot != "" && in.state.Boot != boot {
		in.state.Pending = true
	}
	in.state.Boot = boot
	return in, in.save()
}

// markClosed records that the store was closed properly, unless layers are still to be verified.
func (in *record) markClosed() error {
	in.mu.Lock()
	if !in.state.Pending {
		in.state.Boot = ""
	}
	in.mu.Unlock()
	return in.save()
}

func (in *record) pending() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.state.Pending
}

// markVerified records that every layer was verified.
func (in *record) markVerified() error {
	in.mu.Lock()
	in.state.Pending = false
	in.mu.Unlock()
	return in.save()
}

// version returns the version of a layer's files. Get it before verifying them.
func (in *record) version(layer string) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.versions[layer]
}

// bumpVersion invalidates a verification of a layer's files that is in progress.
func (in *record) bumpVersion(layer string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.versions[layer]++
}

// markCorrupt records that a layer is corrupt. It returns false if that is known, or if the files were replaced since
// version.
func (in *record) markCorrupt(layer string, version int, reason string) (bool, error) {
	in.mu.Lock()
	if _, known := in.state.Corrupt[layer]; known || in.versions[layer] != version {
		in.mu.Unlock()
		return false, nil
	}
	if in.state.Corrupt == nil {
		in.state.Corrupt = map[string]string{}
	}
	in.state.Corrupt[layer] = reason
	in.mu.Unlock()
	return true, in.save()
}

// markRepaired records that a layer was fetched again. A non-nil unverifiable is why it fails verification all the
// same.
func (in *record) markRepaired(layer string, unverifiable error) error {
	in.mu.Lock()
	delete(in.state.Corrupt, layer)
	if unverifiable != nil {
		if in.state.Unverifiable == nil {
			in.state.Unverifiable = map[string]string{}
		}
		in.state.Unverifiable[layer] = unverifiable.Error()
	}
	in.mu.Unlock()
	return in.save()
}

// corruptLayers returns the corrupt layers, with the reasons.
func (in *record) corruptLayers() map[string]string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return maps.Clone(in.state.Corrupt)
}

func (in *record) unverifiable(layer string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	_, ok := in.state.Unverifiable[layer]
	return ok
}

// recordedLayers returns the layers in the file.
func (in *record) recordedLayers() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Keys(in.state.Corrupt)), maps.Keys(in.state.Unverifiable))
}

// forget removes layers that were deleted: other layers may get their ids.
func (in *record) forget(layers []string) error {
	if len(layers) == 0 {
		return nil
	}
	in.mu.Lock()
	for _, layer := range layers {
		delete(in.state.Corrupt, layer)
		delete(in.state.Unverifiable, layer)
	}
	in.mu.Unlock()
	return in.save()
}

// save writes the file so that it survives a power loss.
func (in *record) save() error {
	in.saving.Lock()
	defer in.saving.Unlock()
	in.mu.Lock()
	raw, err := json.MarshalIndent(in.state, "", "\t")
	in.mu.Unlock()
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(in.path); err == nil && string(old) == string(raw) {
		return nil
	}
	return checkpoint.WriteFileSync(in.path, raw, 0o600)
}
