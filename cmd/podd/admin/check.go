package admin

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/podd-project/podd/sandbox"
)

// CheckTimeout bounds a check: calls of the kernel, CNI plugins or runtimes may hang, and all images may be read.
const CheckTimeout = 10 * time.Minute

// confirmDelay is the time between two checks. A resource that is being removed is found by the first only.
const confirmDelay = time.Second

// CheckRequest is the request of POST /check.
type CheckRequest struct {
	// Repair frees leaked resources first, and hides damaged images until they are pulled again.
	Repair bool `json:"repair,omitempty"`
	// Images also verifies every image.
	Images bool `json:"images,omitempty"`
}

// Findings is the answer to POST /check: where records and machine differ.
type Findings = List[sandbox.Finding]

func (rt router) check(n Node) {
	rt.answer(http.MethodPost, "/check", CheckTimeout, func(ctx context.Context, r *http.Request) (any, error) {
		var req CheckRequest
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		found, err := checkTwice(ctx, n, req.Repair)
		if err != nil {
			return nil, err
		}
		if req.Images {
			damaged, err := n.VerifyImages(ctx, req.Repair)
			if err != nil {
				return nil, err
			}
			found = append(found, damaged...)
		}
		return first(found, MaxLimit), nil
	})
}

// checkTwice returns what two checks found. With repair it collects garbage first.
func checkTwice(ctx context.Context, n Node, repair bool) ([]sandbox.Finding, error) {
	if repair {
		if err := n.GC(ctx); err != nil {
			return nil, err
		}
	}
	once, err := n.Check(ctx)
	if err != nil || len(once) == 0 {
		return once, err
	}
	select {
	case <-time.After(confirmDelay):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	again, err := n.Check(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(once, func(f sandbox.Finding) bool { return !slices.Contains(again, f) }), nil
}
