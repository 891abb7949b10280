package main

import (
	"context"
	"errors"
	"strings"

	"github.com/podd-project/podd/sandbox"
)

// verifyImages reads all images. With mark, damaged ones are no longer listed.
func (n *node) verifyImages(ctx context.Context, mark bool) ([]sandbox.Finding, error) {
	damages, err := n.images.Verify(ctx, mark)
	var found []sandbox.Finding
	for _, d := range damages {
		found = append(found, sandbox.Finding{
			Problem: "damaged", What: "image layer", ID: d.Layer,
			Detail: d.Reason + "; pull again: " + strings.Join(d.Images, ", "),
		})
	}
	return found, err
}

// repair does what the start of the daemon does, frees the addresses of unknown pods and checks again. It returns which
// of the findings before are gone, and all that are there now.
func (n *node) repair(ctx context.Context, before []sandbox.Finding) (repaired, after []sandbox.Finding, err error) {
	if err := n.engine.Recover(ctx); err != nil {
		return nil, nil, err
	}
	errs := []error{n.engine.WaitRecovered(ctx), n.engine.GC(ctx)}
	for _, f := range before {
		if f.Address() {
			errs = append(errs, n.engine.FreeAddress(ctx, f.ID))
		}
	}
	after, err = n.engine.Check(ctx)
	left := map[sandbox.Finding]bool{}
	for _, f := range after {
		left[f] = true
	}
	for _, f := range before {
		if !left[f] {
			repaired = append(repaired, f)
		}
	}
	return repaired, after, errors.Join(append(errs, err)...)
}
