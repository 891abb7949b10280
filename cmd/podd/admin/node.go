package admin

import (
	"context"
	"io"

	"github.com/podd-project/podd/cmd/podd/history"
	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/budget"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/streaming"
)

// Node is the node that the resources show and change. Methods without a context answer from memory.
type Node interface {
	// Status returns the status of the node with all pods and the problems, or the pod that pod names:
	// by the beginning of its id, or namespace/name.
	Status(ctx context.Context, pod string) (Status, error)
	// Operations returns the operations in progress, oldest first.
	Operations() []operation.Operation
	// Budgets returns the use and the limit of each budget.
	Budgets() []budget.Usage
	// Pulls returns the pulls in progress, oldest first.
	Pulls() []image.PullProgress
	// Sessions returns the exec, attach and port-forward sessions, oldest first.
	Sessions() []streaming.SessionInfo
	// Usage measures the pods that are ready, or returns the measurements of the last second.
	Usage(ctx context.Context) []PodUsage
	// Disk returns the disk space that images and containers take.
	Disk(ctx context.Context) (Disk, error)
	// DiskImages returns the disk space that images take.
	DiskImages() DiskImages
	// Log returns the last lines of a container's log.
	Log(container string) (string, error)
	// LoadImages loads the images of an archive.
	LoadImages(ctx context.Context, path string) ([]LoadedImage, error)
	// LoadArchive loads the images of an archive that it reads, and bounds its size.
	LoadArchive(ctx context.Context, archive io.Reader) ([]LoadedImage, error)
	// ExportImage writes an image to a new file.
	ExportImage(ctx context.Context, image, path string) error
	// RemoveImage removes an image with all of its names, unless a container uses it.
	RemoveImage(ctx context.Context, id string) error
	// RemoveUnusedLayers removes the layers of no image.
	RemoveUnusedLayers() error
	// History returns the last operations that q selects, and an error if a part of them cannot be read.
	History(q history.Query) ([]operation.Operation, error)
	// Reload reads the configuration again and applies it as a whole, or returns why not.
	Reload() (Reload, error)
	LogLevel() string
	// SetLogLevel changes the level until the next start or reload.
	SetLogLevel(level string) error
	Check(ctx context.Context) ([]sandbox.Finding, error)
	// GC removes resources without a record.
	GC(ctx context.Context) error
	// VerifyImages reads all images. With mark, damaged ones are no longer listed.
	VerifyImages(ctx context.Context, mark bool) ([]sandbox.Finding, error)
}
