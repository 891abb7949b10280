package admin

import "github.com/podd-project/podd/sandbox/operation"

type operationsNode interface {
	// Operations returns the operations in progress, oldest first.
	Operations() []operation.Operation
}

func (rt router) operations(n operationsNode) { list(rt, "/operations", n.Operations) }
