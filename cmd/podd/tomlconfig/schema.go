package tomlconfig

import (
	"reflect"
	"strings"
)

// entry is one tagged field of a struct, with its value.
type entry struct {
	name, comment string
	value         reflect.Value
}

// entries returns the tagged fields of a struct in order. Embedded structs without a tag are flattened.
func entries(v reflect.Value) []entry {
	var out []entry
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			out = append(out, entries(v.Field(i))...)
		case f.IsExported() && name != "" && name != "-":
			out = append(out, entry{name: name, comment: f.Tag.Get("comment"), value: v.Field(i)})
		}
	}
	return out
}

// fieldNamed returns the field with a TOML name. TOML keys are case-sensitive.
func fieldNamed(v reflect.Value, name string) (reflect.Value, bool) {
	for _, e := range entries(v) {
		if e.name == name {
			return e.value, true
		}
	}
	return reflect.Value{}, false
}

// isTable reports whether values of t are TOML tables.
func isTable(t reflect.Type) bool { return t.Kind() == reflect.Struct || t.Kind() == reflect.Map }

// typeAt returns the type of a key. Entries of maps on the way need not exist.
func typeAt(t reflect.Type, path []string) (reflect.Type, bool) {
	for _, name := range path {
		switch t.Kind() {
		case reflect.Map:
			t = t.Elem()
		case reflect.Struct:
			f, ok := fieldNamed(reflect.New(t).Elem(), name)
			if !ok {
				return nil, false
			}
			t = f.Type()
		default:
			return nil, false
		}
	}
	return t, true
}

// keyString returns a path as a dotted TOML key, with quotes where needed.
func keyString(path []string) string {
	var b strings.Builder
	for i, name := range path {
		if i > 0 {
			b.WriteByte('.')
		}
		if isBare(name) {
			b.WriteString(name)
		} else {
			b.WriteString(quote(name))
		}
	}
	return b.String()
}

func isBare(name string) bool {
	for _, c := range name {
		bare := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
		if !bare {
			return false
		}
	}
	return name != ""
}
