package integration

import "os"

// soaking is true for the long variants of the tests: make soak.
func soaking() bool { return os.Getenv("SOAK") != "" }

// soak chooses between the short and the long variant.
func soak[T any](short, long T) T {
	if soaking() {
		return long
	}
	return short
}
