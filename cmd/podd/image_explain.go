package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/image/registry"
)

func newImageExplainCommand(opts *settings.Flags) *cobra.Command {
	var output outputFormat
	var namespace string
	cmd := &cobra.Command{
		Use: "explain NAME", Short: "Print what a pull of a name would do", Args: cobra.ExactArgs(1),
		Long: `Print where a pull of a name would look, in order, with the mirrors of registries.conf, the directories of
certificates, the user of the node's credentials, and the part of the signature policy that decides. It reads the files
as they are now, contacts no registry and needs no daemon. A pod's own credentials take precedence over the node's.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := opts.Load()
			if err != nil {
				return err
			}
			images, err := l.Image.ForNamespace(namespace)
			if err != nil {
				return err
			}
			explained, err := registry.Explain(cmd.Context(), images, args[0])
			if err != nil {
				return err
			}
			if output != outputText {
				return output.print(cmd.OutOrStdout(), explained)
			}
			printExplained(cmd.OutOrStdout(), explained)
			return nil
		},
	}
	cmd.Flags().StringVar(&namespace, "namespace", "", "for the pods of a `NAMESPACE`, with its own files")
	outputFlag(cmd, &output)
	return cmd
}

func printExplained(w io.Writer, all []registry.Explanation) {
	for _, e := range all {
		fmt.Fprintf(w, "%s\n", e.Name)
		fmt.Fprintf(w, "  registries.conf: %s\n", cmp.Or(e.Registry, "no table applies"))
		if e.Blocked {
			fmt.Fprintln(w, "  BLOCKED by registries.conf")
		}
		for i, s := range e.Sources {
			fmt.Fprintf(w, "  %d. %s\n", i+1, s.Name)
			fmt.Fprintf(w, "     credentials: %s\n", cmp.Or(s.User, "none of the node"))
			fmt.Fprintf(w, "     certificates: %s\n", cmp.Or(strings.Join(s.Certificates, " "), "those of the machine"))
			if s.Insecure {
				fmt.Fprintln(w, "     insecure: HTTP, or a certificate that is not checked")
			}
		}
		fmt.Fprintf(w, "  signature policy: %s\n", strings.Join(e.Policy.Requirements, "; "))
		if e.Policy.File != "" {
			fmt.Fprintf(w, "     %s, scope %q\n", e.Policy.File, e.Policy.Scope)
		}
	}
}
