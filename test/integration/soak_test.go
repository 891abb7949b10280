package integration

import "os"

// soaking reports whether to run the long variants of the tests, as `make soak` does.
func soaking() bool { return os.Getenv("SOAK") != "" }

// soak returns long in a soak run, else short.
func soak[T any](short, long T) T {
	if soaking() {
		return long
	}
	return short
}
