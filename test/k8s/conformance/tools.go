//go:build tools

// Package conformance names what build.sh builds, so that go.mod has what that needs. It is a module of its own because
// the tests need modules that a cluster does not, and the program that a cluster is would be built anew with every
// change.
//
// go mod tidy takes away what only the tests of the test package need; this brings it back:
// go get -t k8s.io/kubernetes/test/e2e_node k8s.io/kubernetes/test/images/agnhost github.com/onsi/ginkgo/v2/ginkgo
package conformance

import (
	_ "github.com/onsi/ginkgo/v2/ginkgo"
	_ "k8s.io/kubernetes/test/e2e_node"
	_ "k8s.io/kubernetes/test/images/agnhost"
)
