package main

import (
	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/settings"
)

func newImageCommand(opts *settings.Flags) *cobra.Command {
	return newGroup("image", "Show and change the images of the node",
		newImageListCommand(opts), newImageDiskCommand(opts), newImageLoadCommand(opts),
		newImageExportCommand(opts), newImagePruneCommand(opts), newImageExplainCommand(opts))
}
