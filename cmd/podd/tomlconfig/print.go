package tomlconfig

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// width is the maximum width of comment lines.
const width = 100

// Document writes every key with its comment and its value, commented out: a file that documents all keys and sets
// none.
func (s *Set) Document(w io.Writer) error {
	return s.print(w, func(p *printer, path []string, e entry) {
		if p.last == other {
			p.printf("\n")
		}
		p.comment(e.comment)
		p.printf("#%s = %s\n", keyString(path[len(path)-1:]), literal(e.value))
	})
}

// Dump writes the effective values, each with its origin in a comment. Merging the output gives the same values.
func (s *Set) Dump(w io.Writer) error {
	return s.print(w, func(p *printer, path []string, e entry) {
		origin := oneLine(s.Origin(keyString(path)))
		p.printf("%s = %s # %s\n", keyString(path[len(path)-1:]), literal(e.value), origin)
	})
}

// Values returns the effective values by dotted key, durations as strings. Callers must not modify them.
func (s *Set) Values() map[string]any {
	values := map[string]any{}
	s.print(io.Discard, func(_ *printer, path []string, e entry) { // io.Discard does not fail
		v := e.value.Interface()
		if d, ok := v.(time.Duration); ok {
			v = shortDuration(d)
		}
		values[keyString(path)] = v
	})
	return values
}

func (s *Set) print(w io.Writer, key func(*printer, []string, entry)) error {
	p := printer{w: bufio.NewWriter(w), key: key}
	p.table(nil, "", s.target)
	return p.w.Flush()
}

type printer struct {
	w   *bufio.Writer
	key func(*printer, []string, entry)
	// last is the kind of the last printed line.
	last byte
}

// Values of printer.last.
const (
	nothing byte = iota
	header
	other
)

func (p *printer) printf(format string, args ...any) {
	p.last = other
	fmt.Fprintf(p.w, format, args...) // Flush returns the first error
}

// table prints a table: its keys first, then its sub-tables, as TOML requires.
func (p *printer) table(path []string, comment string, v reflect.Value) {
	all := children(v)
	plain := slices.DeleteFunc(slices.Clone(all), func(e entry) bool { return isTable(e.value.Type()) })
	if len(path) > 0 && (len(plain) > 0 || comment != "" || len(all) == 0) {
		if p.last != nothing {
			p.printf("\n")
		}
		p.comment(comment)
		p.printf("[%s]\n", keyString(path))
		p.last = header
	}
	for _, e := range plain {
		p.key(p, append(slices.Clone(path), e.name), e)
	}
	for _, e := range all {
		if isTable(e.value.Type()) {
			p.table(append(slices.Clone(path), e.name), e.comment, e.value)
		}
	}
}

// children returns the entries of a table: the fields of a struct in order, the entries of a map by name.
func children(v reflect.Value) []entry {
	if v.Kind() == reflect.Struct {
		return entries(v)
	}
	byName := map[string]reflect.Value{}
	for it := v.MapRange(); it.Next(); {
		byName[it.Key().String()] = it.Value()
	}
	var out []entry
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, entry{name: name, value: byName[name]})
	}
	return out
}

// comment prints text as wrapped comment lines.
func (p *printer) comment(text string) {
	for paragraph := range strings.Lines(text) {
		line := "#"
		for word := range strings.FieldsSeq(paragraph) {
			if len(line)+1+len(word) > width && line != "#" {
				p.printf("%s\n", line)
				line = "#"
			}
			line += " " + word
		}
		p.printf("%s\n", line)
	}
}

// literal returns a value as TOML.
func literal(v reflect.Value) string {
	if v.Type() == durationType {
		return quote(shortDuration(time.Duration(v.Int())))
	}
	switch v.Kind() {
	case reflect.String:
		return quote(v.String())
	case reflect.Slice:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = literal(v.Index(i))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case reflect.Float32, reflect.Float64:
		return floatLiteral(v.Float())
	}
	return fmt.Sprint(v.Interface())
}

// floatLiteral returns f with a dot or exponent, which make a TOML number a float.
func floatLiteral(f float64) string {
	s := strings.ToLower(strconv.FormatFloat(f, 'g', -1, 64))
	if strings.ContainsAny(s, ".einf") {
		return s
	}
	return s + ".0"
}

// shortDuration returns Duration.String without zero units: "2m", not "2m0s".
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// quote returns s as a TOML basic string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case unicode.IsControl(c):
			fmt.Fprintf(&b, `\u%04X`, c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// oneLine replaces control characters, so that s can be part of a comment.
func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return '?'
		}
		return c
	}, s)
}
