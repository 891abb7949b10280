package admin

import "github.com/podd-project/podd/image"

type pullsNode interface {
	// Pulls returns the pulls in progress, oldest first.
	Pulls() []image.PullProgress
}

func (rt router) pulls(n pullsNode) { list(rt, "/pulls", n.Pulls) }
