package daemon

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/nri"
	"github.com/podd-project/podd/server"
	"github.com/podd-project/podd/streaming"
)

// Node has the parts of podd that serve this node.
type Node struct {
	Images *image.Store
	Engine *sandbox.Engine
	pods   *network.CNI
	// plugins are the NRI plugins, none if the configuration disables them.
	plugins *nri.Plugins
	// streams and server are nil in commands that do not serve.
	streams *streaming.Server
	server  *server.Server
}

// preload loads the images in preload_dir.
func (n *Node) preload(ctx context.Context, log logrus.FieldLogger) {
	if err := n.Images.Load(ctx); err != nil && ctx.Err() == nil {
		log.WithError(err).Error("failed to load some preloaded images")
	}
}

// VerifyImages reads all images. With mark, damaged ones are no longer listed.
func (n *Node) VerifyImages(ctx context.Context, mark bool) ([]sandbox.Finding, error) {
	damages, err := n.Images.Verify(ctx, mark)
	var found []sandbox.Finding
	for _, d := range damages {
		found = append(found, sandbox.Finding{
			Problem: "damaged", What: "image layer", ID: d.Layer,
			Detail: d.Reason + "; pull again: " + strings.Join(d.Images, ", "),
		})
	}
	return found, err
}

// Repair recovers as a start of the daemon does, frees the addresses of unknown pods and checks again. It returns which
// of the findings before are gone, and all that are there now.
func (n *Node) Repair(ctx context.Context, before []sandbox.Finding) (repaired, after []sandbox.Finding, err error) {
	if err := n.Engine.Recover(ctx); err != nil {
		return nil, nil, err
	}
	errs := []error{n.Engine.WaitRecovered(ctx), n.Engine.GC(ctx)}
	for _, f := range before {
		if f.Address() {
			errs = append(errs, n.Engine.FreeAddress(ctx, f.ID))
		}
	}
	after, err = n.Engine.Check(ctx)
	repaired = slices.DeleteFunc(before, func(f sandbox.Finding) bool { return slices.Contains(after, f) })
	return repaired, after, errors.Join(append(errs, err)...)
}
