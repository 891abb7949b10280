package image

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/podd-project/podd/checkpoint"
)

// preloadedFile is below Config.Root.
const preloadedFile = "preloaded.json"

// preloaded records, across restarts, which images were loaded from which file. If it is lost, the files are loaded
// again.
type preloaded struct {
	path string

	mu    sync.Mutex
	files map[string]preloadedEntry
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

// has reports whether an image came from a file that still exists.
func (p *preloaded) has(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
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
