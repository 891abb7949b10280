// Package registry holds the rules of the node and of a request about registries: the configuration of pulls, names,
// credentials, signature policies, registries.conf, error kinds, and artifacts.
//
// It has no store and imports none. It runs in the daemon, in the process of a pull, in commands, and for credential
// helpers in a separate process (Register). image and cmd/podd call it.
package registry
