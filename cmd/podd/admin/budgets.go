package admin

import "github.com/podd-project/podd/sandbox/budget"

type budgetsNode interface {
	// Budgets returns what users of the node cost podd, and what they may.
	Budgets() []budget.Usage
}

func (rt router) budgets(n budgetsNode) { list(rt, "/budgets", n.Budgets) }
