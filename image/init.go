package image

import (
	"go.podman.io/storage/pkg/reexec"

	"github.com/podd-project/podd/image/confine"
	"github.com/podd-project/podd/image/lazy"
	"github.com/podd-project/podd/image/registry"
	"github.com/podd-project/podd/image/worker"
)

// FilesRestricted reports whether the kernel keeps processes of pulls from the node's files.
func FilesRestricted() bool { return confine.FilesRestricted() }

// Init must be the first call in the main function of a program that opens a Store, which must end if it returns true:
// pulls and the unpacking of layers run in processes of the same program.
func Init() bool {
	worker.Register()
	registry.Register()
	lazy.Register()
	return reexec.Init()
}
