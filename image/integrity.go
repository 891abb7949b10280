package image

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

// integrityFile is below Config.Root.
const integrityFile = "integrity.json"

// integrity remembers, across restarts and power losses, which layers have lost content and whether all of them have to be
// looked at.
type integrity struct {
	path string

	saving sync.Mutex // serialises save; held over I/O on purpose, no reader takes it

	mu    sync.Mutex
	state integrityState
	// changes counts, per layer, the times its files were replaced: a verdict on the former ones is void.
	versions map[string]int
}

// integrityState is the file.
type integrityState struct {
	// Boot is the boot of the kernel under which the store was opened and not closed in order; "" when it was.
	Boot string `json:"boot,omitempty"`
	// Pending: there was a power loss, or a crash of the kernel, and not every layer was verified since.
	Pending bool `json:"pending,omitempty"`
	// Damaged are layers by id, with what is wrong with them.
	Corrupt map[string]string `json:"damaged,omitempty"`
	// Trusted are layers by id that came from a blob with the right digest and yet cannot be verified, with why.
	Unverifiable map[string]string `json:"trusted,omitempty"`
}

// openIntegrity reads what the store's last user left and notes that the store is open. Without a boot id nothing is ever
// taken for a power loss. The error is that of writing the note; the value is good all the same.
func openIntegrity(path, boot string) (*integrity, error) {
	in := &integrity{path: path, versions: map[string]int{}}
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &in.state)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		in.state = integrityState{}
	case err != nil: // it is not known what it said, so nothing else is
		in.state = integrityState{Pending: true}
	}
	if in.state.Boot != "" && in.state.Boot != boot {
		in.state.Pending = true
	}
	in.state.Boot = boot
	return in, in.save()
}

// closed notes an end in order, unless layers may be in memory yet, or were never verified.
func (in *integrity) markClosed(synced bool) error {
	in.mu.Lock()
	if synced && !in.state.Pending {
		in.state.Boot = ""
	}
	in.mu.Unlock()
	return in.save()
}

func (in *integrity) pending() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.state.Pending
}

// verified notes that every layer was looked at.
func (in *integrity) markVerified() error {
	in.mu.Lock()
	in.state.Pending = false
	in.mu.Unlock()
	return in.save()
}

// version is to be taken before a layer is looked at.
func (in *integrity) version(layer string) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.versions[layer]
}

// changed voids what is being found out about a layer's files at the moment.
func (in *integrity) bumpVersion(layer string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.versions[layer]++
}

// damaged notes that a layer has lost content; false when that is known, or was said of other files than it has now.
func (in *integrity) markCorrupt(layer string, version int, reason string) (bool, error) {
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

// mended notes that a layer has its content again; doubt, if any, is why that cannot be verified.
func (in *integrity) markRepaired(layer string, doubt error) error {
	in.mu.Lock()
	delete(in.state.Corrupt, layer)
	if doubt != nil {
		if in.state.Unverifiable == nil {
			in.state.Unverifiable = map[string]string{}
		}
		in.state.Unverifiable[layer] = doubt.Error()
	}
	in.mu.Unlock()
	return in.save()
}

// damages are the damaged layers, with what is wrong with them.
func (in *integrity) corruptLayers() map[string]string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return maps.Clone(in.state.Corrupt)
}

func (in *integrity) unverifiable(layer string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	_, ok := in.state.Unverifiable[layer]
	return ok
}

// noted are the layers of which anything is remembered.
func (in *integrity) recordedLayers() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Keys(in.state.Corrupt)), maps.Keys(in.state.Unverifiable))
}

// forget drops what is remembered of layers that are gone: others may come that have their ids.
func (in *integrity) forget(layers []string) error {
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

// split sorts out the images that use a damaged layer.
func (in *integrity) split(entries []*entry) (sound, damaged []*entry) {
	bad := in.corruptLayers()
	for _, e := range entries {
		if slices.ContainsFunc(e.layers, func(layer string) bool { _, ok := bad[layer]; return ok }) {
			damaged = append(damaged, e)
		} else {
			sound = append(sound, e)
		}
	}
	return sound, damaged
}

// save writes the file so that it survives what it is there for.
func (in *integrity) save() error {
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
