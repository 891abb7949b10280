package main

import (
	"net/http"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/settings"
)

func newImageExportCommand(opts *settings.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "export IMAGE FILE", Short: "Write an image to a new archive", Args: cobra.ExactArgs(2),
		ValidArgsFunction: completeImage(opts),
		Long: `Write an image with its tags to a new file, which "podd image load" and other tools read: a docker archive if
the image has a manifest of docker's type, else an OCI archive. The image keeps its id. Layers are not compressed, so
the digest of the manifest is another. The daemon writes the file, on its node.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			daemon, err := client(opts)
			if err != nil {
				return err
			}
			path, err := filepath.Abs(args[1])
			if err != nil {
				return err
			}
			return daemon.Do(cmd.Context(), http.MethodPost, "/images/export",
				admin.ExportRequest{Image: args[0], Path: path}, nil)
		},
	}
}
