// Package tomlconfig fills a struct from several TOML documents, key by key, and records which document set which key.
//
// It defines how documents are merged (tables merge, other values replace), how errors are reported (file, line and the
// nearest known key) and how a struct is printed as TOML. The keys are the fields of the struct: the tag `toml` is the
// name, the tag `comment` the documentation. It does not open files. cmd/podd is its only caller.
package tomlconfig

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Default is the origin of a key that no document has set.
const Default = "default"

// Set fills a struct. It is not safe for concurrent use.
type Set struct {
	target  reflect.Value
	origins map[string]string
}

// New returns a Set that fills target, a pointer to a struct with the defaults. Fields without a toml tag are
// ignored. A field may be a string, bool, number, time.Duration (written "1m30s"), a slice of those, a struct (a
// table), or a map from string to string or struct (a table with arbitrary keys).
func New(target any) *Set {
	return &Set{target: reflect.ValueOf(target).Elem(), origins: map[string]string{}}
}

// Merge sets the keys of a TOML document. Name is the document's file name, for errors and origins. Wrong has an error
// for each key that cannot be set, as "name:line: error"; the other keys are set. Err is set if the document is not
// TOML.
func (s *Set) Merge(name string, data []byte) (wrong []error, err error) {
	tree := map[string]any{}
	if err := toml.Unmarshal(data, &tree); err != nil {
		return nil, syntaxError(name, err)
	}
	m := merge{set: s, name: name, lines: keyLines(data)}
	m.table(nil, s.target, tree)
	return m.errs, nil
}

// Origin returns what set a dotted key, or first named a table in a map: "name:line" of the last document that did, the
// origin passed to Assign, or Default. The key is as Key returns it.
func (s *Set) Origin(key string) string {
	if o, ok := s.origins[key]; ok {
		return o
	}
	return Default
}

// syntaxError adds name and position to an error of go-toml.
func syntaxError(name string, err error) error {
	var d *toml.DecodeError
	if errors.As(err, &d) {
		row, column := d.Position()
		return fmt.Errorf("%s:%d:%d: %w", name, row, column, err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// merge merges one document into a Set.
type merge struct {
	set *Set
	// name is the document's file, and lines the lines of its keys; nil for a flag.
	name  string
	lines map[string]int
	errs  []error
}

// where returns what sets a key.
func (m *merge) where(key string) string {
	if m.lines == nil {
		return m.name
	}
	return fmt.Sprintf("%s:%d", m.name, m.lines[key])
}

// inOrder returns the names of the tree at path, in the order of their first lines.
func (m *merge) inOrder(path []string, tree map[string]any) []string {
	line := func(name string) int { return m.lines[keyString(append(slices.Clone(path), name))] }
	return slices.SortedFunc(maps.Keys(tree), func(a, b string) int {
		return cmp.Or(cmp.Compare(line(a), line(b)), strings.Compare(a, b))
	})
}

// table merges tree into target, a struct or a map, at path.
func (m *merge) table(path []string, target reflect.Value, tree map[string]any) {
	for _, name := range m.inOrder(path, tree) {
		at := append(slices.Clone(path), name)
		if target.Kind() == reflect.Map {
			m.element(at, target, name, tree[name])
			continue
		}
		f, ok := fieldNamed(target, name)
		if !ok {
			m.unknown(at)
			continue
		}
		m.value(at, f, tree[name])
	}
}

// unknown reports a key that does not exist, with the name that was most likely meant.
func (m *merge) unknown(path []string) {
	if len(m.errs) >= maxErrors { // nearest is slow
		return
	}
	m.fail(path, "unknown key %q, the nearest known key is %q", keyString(path), nearest(m.set.target, path))
}

// element merges v into an entry of a map. Map values cannot be set in place, so it changes a copy and stores it.
func (m *merge) element(path []string, target reflect.Value, name string, v any) {
	entry := reflect.New(target.Type().Elem()).Elem()
	key := reflect.ValueOf(name).Convert(target.Type().Key())
	if old := target.MapIndex(key); old.IsValid() {
		entry.Set(old)
	}
	if isTable(entry.Type()) {
		m.set.origins[keyString(path)] = m.where(keyString(path))
	}
	m.value(path, entry, v)
	if target.IsNil() {
		target.Set(reflect.MakeMap(target.Type()))
	}
	target.SetMapIndex(key, entry)
}

// value merges v into target if target is a table, and replaces target otherwise.
func (m *merge) value(path []string, target reflect.Value, v any) {
	if isTable(target.Type()) {
		sub, ok := v.(map[string]any)
		if !ok {
			m.fail(path, "%s is a table, not %s", keyString(path), describe(v))
			return
		}
		m.table(path, target, sub)
		return
	}
	if err := convert(target, v); err != nil {
		m.fail(path, "%s: %w", keyString(path), err)
		return
	}
	m.set.origins[keyString(path)] = m.where(keyString(path))
}

// maxErrors limits the errors reported for one document: a file that is not a configuration has many.
const maxErrors = 20

func (m *merge) fail(path []string, format string, args ...any) {
	if len(m.errs) < maxErrors {
		m.errs = append(m.errs, fmt.Errorf("%s: %w", m.where(keyString(path)), fmt.Errorf(format, args...)))
	}
}
