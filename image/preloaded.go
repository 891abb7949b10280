package image

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/podd-project/podd/checkpoint"
)

// preloaded records, across restarts, which images were loaded from which file. If it is lost, the files are loaded
// again.
type preloaded struct {
	path string

	mu    sync.Mutex
	files map[string]preloadedEntry
	// before has the images that were listed before the load that is in progress, nil if there is none.
	before map[string]*entry
}

// preloadedEntry is one file of the preload directory.
type preloadedEntry struct {
	Stamp  string   `json:"stamp"`
	Images []string `json:"images"`
}

func loadPreloaded(path string) *preloaded {
	p := &preloaded{path: path, files: map[string]preloadedEntry{}}
	raw, err := os.ReadFile(path)
	if err != nil {
		return p
	}
	if err := json.Unmarshal(raw, &p.files); err != nil {
		p.files = map[string]preloadedEntry{}
	}
	return p
}

// begin says that a load is in progress, and end that it is not. An image is listed before its load has ended, so all
// that are new by then count as preloaded.
func (p *preloaded) begin(before map[string]*entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = before
}

func (p *preloaded) end() {
	p.begin(nil)
}

// has reports whether an image came from a file that still exists, or may have.
func (p *preloaded) has(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.before != nil && p.before[id] == nil {
		return true
	}
	for _, e := range p.files {
		if slices.Contains(e.Images, id) {
			return true
		}
	}
	return false
}

func (p *preloaded) file(path string) (preloadedEntry, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.files[path]
	return e, ok
}

// replace reports whether anything changed.
func (p *preloaded) replace(files map[string]preloadedEntry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	same := maps.EqualFunc(p.files, files, func(a, b preloadedEntry) bool {
		return a.Stamp == b.Stamp && slices.Equal(a.Images, b.Images)
	})
	p.files = files
	return !same
}

// save writes the file. It need not survive a power loss.
func (p *preloaded) save() error {
	p.mu.Lock()
	raw, err := json.MarshalIndent(p.files, "", "\t")
	p.mu.Unlock()
	if err != nil {
		return err
	}
	return checkpoint.WriteFile(p.path, raw, 0o600)
}
