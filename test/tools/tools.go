// Package tools has tests that run the code of tools which look for containers on a node against podd. It is a module
// of its own, so that podd does not depend on them.
package tools
