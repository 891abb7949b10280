// Package simulate has only tests: a node whose engine is real and whose everything else follows from a seed. See
// README.md.
package simulate
