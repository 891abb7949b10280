package tomlconfig

import (
	"bytes"

	"github.com/pelletier/go-toml/v2/unstable"
)

// keyLines maps every key and table of a valid document to the line of its first occurrence. go-toml exposes
// positions of keys only in its package "unstable", which is used for nothing else.
func keyLines(data []byte) map[string]int {
	k := lineIndex{lines: map[string]int{}, data: data}
	p := unstable.Parser{}
	p.Reset(data)
	var table []string
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = k.key(nil, e.Key())
		case unstable.KeyValue:
			k.keyValue(table, e)
		}
	}
	return k.lines
}

type lineIndex struct {
	lines map[string]int
	data  []byte
	// line is the line of offset. Keys come in document order, so counting continues from the last key.
	line, offset int
}

// key records the line of each prefix of a dotted key in table and returns the whole path.
func (k *lineIndex) key(table []string, it unstable.Iterator) []string {
	path := append([]string(nil), table...)
	for it.Next() {
		n := it.Node()
		path = append(path, string(n.Data))
		k.record(keyString(path), int(n.Raw.Offset))
	}
	return path
}

func (k *lineIndex) keyValue(table []string, e *unstable.Node) {
	path := k.key(table, e.Key())
	if e.Value().Kind != unstable.InlineTable {
		return
	}
	for it := e.Value().Children(); it.Next(); {
		k.keyValue(path, it.Node())
	}
}

func (k *lineIndex) record(key string, offset int) {
	if offset < k.offset || offset > len(k.data) {
		k.line, k.offset = 0, 0
		offset = min(offset, len(k.data))
	}
	k.line += bytes.Count(k.data[k.offset:offset], []byte{'\n'})
	k.offset = offset
	if _, seen := k.lines[key]; !seen {
		k.lines[key] = k.line + 1
	}
}
