// Package nri has tests that run plugins of other projects, as they are, against podd. It is a module of its own, so
// that podd does not depend on them.
package nri
