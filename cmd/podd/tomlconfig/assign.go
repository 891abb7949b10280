package tomlconfig

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
)

// Assign sets one dotted key from the command line. Strings and durations take value as it is, without quotes; values
// of other types, and quoted strings, are parsed as TOML: true, 5, ["a", "b"]. Origin is the name of the flag.
func (s *Set) Assign(origin, key, value string) error {
	if strings.ContainsAny(key, "\n\r=") || !utf8.ValidString(key) {
		return fmt.Errorf("%s: %q is not a key", origin, key)
	}
	if !utf8.ValidString(value) {
		return fmt.Errorf("%s: the value is not UTF-8 text", origin)
	}
	path, err := splitKey(key)
	if err != nil {
		return fmt.Errorf("%s: %q is not a key: %w", origin, key, err)
	}
	literal := strings.TrimSpace(value)
	if t, known := typeAt(s.target.Type(), path); !known || isText(t, literal) && !quoted(literal) {
		literal = quote(value) // the error is about the unknown key, not its value
	}
	if strings.ContainsAny(literal, "\n\r") { // a second line would be a second key
		return fmt.Errorf("%s: the value has more than one line", origin)
	}
	tree := map[string]any{}
	if err := toml.Unmarshal([]byte(key+" = "+literal), &tree); err != nil {
		return fmt.Errorf("%s: %q is not a TOML value such as true, 5, \"text\" or [\"a\", \"b\"]: %w", origin, value, err)
	}
	m := merge{set: s, name: origin}
	m.table(nil, s.target, tree)
	return errors.Join(m.errs...)
}

// Key returns a dotted key with quotes where they are needed only. One that is not valid is returned as it is.
func Key(key string) string {
	path, err := splitKey(key)
	if err != nil {
		return key
	}
	return keyString(path)
}

// splitKey parses a dotted key with the TOML parser.
func splitKey(key string) ([]string, error) {
	tree := map[string]any{}
	if err := toml.Unmarshal([]byte(key+" = 0"), &tree); err != nil {
		return nil, err
	}
	var path []string
	for len(tree) > 0 {
		for name, v := range tree { // one entry: one key was parsed
			path = append(path, name)
			tree, _ = v.(map[string]any) // nil at the 0
		}
	}
	if len(path) == 0 { // a comment
		return nil, errors.New("it has no name")
	}
	return path, nil
}

// isText reports whether a value of t, such as a size with a unit or a duration, has no quotes on the command line.
func isText(t reflect.Type, value string) bool {
	_, noNumber := strconv.ParseInt(value, 0, 64)
	return t.Kind() == reflect.String || t.Kind() == reflect.Int64 && noNumber != nil
}

// quoted reports whether s is a TOML string with quotes.
func quoted(s string) bool {
	return len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0]
}
