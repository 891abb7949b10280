package tomlconfig

import (
	"reflect"
	"slices"
	"strings"
)

// nearest returns the known key that was most likely meant by path: the one with the same name in another table, or
// else that with the least edit distance.
func nearest(target reflect.Value, path []string) string {
	best, least := "", -1
	for _, known := range knownKeys(target.Type(), path) {
		d := distance(keyString(path), keyString(known))
		if known[len(known)-1] == path[len(path)-1] {
			d = min(d, 1)
		}
		if least < 0 || d < least {
			best, least = keyString(known), d
		}
	}
	return best
}

// knownKeys returns every key and table of t. The keys of maps are taken from like, if it has one at that place, so
// that the suggestion for "runtime.handlers.kata.pth" contains kata.
func knownKeys(t reflect.Type, like []string) [][]string {
	var out [][]string
	var walk func(t reflect.Type, path []string)
	walk = func(t reflect.Type, path []string) {
		if len(path) > 0 {
			out = append(out, path)
		}
		switch t.Kind() {
		case reflect.Map:
			name := "NAME"
			if len(like) > len(path)+1 {
				name = like[len(path)]
			}
			walk(t.Elem(), append(slices.Clone(path), name))
		case reflect.Struct:
			for _, e := range entries(reflect.New(t).Elem()) {
				walk(e.value.Type(), append(slices.Clone(path), e.name))
			}
		}
	}
	walk(t, nil)
	return out
}

// distance returns the Levenshtein distance of a and b, of their first 200 bytes.
func distance(a, b string) int {
	a, b = strings.ToLower(a[:min(len(a), 200)]), strings.ToLower(b[:min(len(b), 200)])
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
