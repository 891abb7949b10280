package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/settings"
)

// completePod completes a command's first argument with the names of pods.
func completePod(opts *settings.Flags) cobra.CompletionFunc {
	return completeFirst(opts, func(ctx context.Context, daemon *admin.Client) (names []string) {
		s, _ := fetchStatus(ctx, daemon, "") // without a daemon there are no names
		for _, p := range s.Pods {
			names = append(names, p.Name)
		}
		return names
	})
}

// completeImage completes a command's first argument with the names of images.
func completeImage(opts *settings.Flags) cobra.CompletionFunc {
	return completeFirst(opts, func(ctx context.Context, daemon *admin.Client) (names []string) {
		var disk admin.Disk
		_ = daemon.Get(ctx, fmt.Sprintf("/disk?limit=%d", admin.MaxLimit), &disk) // without a daemon there are no names
		for _, i := range disk.Images.Items {
			names = append(names, i.Names...)
		}
		return names
	})
}

func completeFirst(opts *settings.Flags, names func(context.Context, *admin.Client) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		daemon, err := client(opts)
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
		defer cancel()
		return names(ctx, daemon), cobra.ShellCompDirectiveNoFileComp
	}
}
