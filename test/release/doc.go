// Package release tests what `make release` builds, as a user gets it: that two builds of a commit are the same, that
// the packages follow the rules of their distributions, that they install and leave nothing, that the arm64 binary
// runs.
//
// It is part of no other test run: `make test-release` runs it, as root, on Debian.
package release
