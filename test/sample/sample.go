// Package sample selects the part of a long list of tests that runs on one commit. The next commit runs another part,
// and "make nightly" runs all.
package sample

import (
	"fmt"
	"hash/fnv"
	"os"
	"testing"
)

// Variable names the environment variable that a sample depends on; the Makefile sets it to the commit. "all" selects
// everything, as does an empty value, so a plain "go test" leaves nothing out.
const Variable = "PODD_SAMPLE"

// Every returns the first number of a list that starts with 1, and the distance to each next one: 1 and 1 if the sample
// is everything, else the distance n and one of its n offsets. key tells lists of one commit apart.
func Every(n int, key ...any) (first, distance int) {
	value := os.Getenv(Variable)
	if value == "all" || value == "" {
		return 1, 1
	}
	hash := fnv.New32a()
	fmt.Fprint(hash, value, key)
	return 1 + int(hash.Sum32()%uint32(n)), n
}

// Of returns the part of a list that Every selects.
func Of[T any](n int, list []T, key ...any) (part []T) {
	first, distance := Every(n, key...)
	for i := first - 1; i < len(list); i += distance {
		part = append(part, list[i])
	}
	return part
}

// Takes reports whether the test called key is in the sample, as one of n is.
func Takes(n int, key ...any) bool {
	first, _ := Every(n, key...)
	return first == 1
}

// Some returns the first name, and each other one for one commit in three: the handlers with which a test runs.
func Some(t testing.TB, names ...string) []string {
	some := names[:1:1]
	for _, name := range names[1:] {
		if Takes(3, t.Name(), name) {
			some = append(some, name)
		}
	}
	return some
}
