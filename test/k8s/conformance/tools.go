//go:build tools

// Package conformance pins what build.sh builds. It has a module of its own, because the tests need modules that the
// cluster does not, and each change of go.mod would mean building the cluster's program again.
//
// go mod tidy removes what only the tests of package e2e_node need. This adds it again:
// go get -t k8s.io/kubernetes/test/e2e_node
package conformance

import (
	_ "github.com/onsi/ginkgo/v2/ginkgo"
	_ "k8s.io/kubernetes/test/e2e/dra/test-driver"
	_ "k8s.io/kubernetes/test/e2e_node"
	_ "k8s.io/kubernetes/test/images/agnhost"
)
