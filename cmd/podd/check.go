package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/daemon"
	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/sandbox"
)

// findings is the output of `podd check`.
type findings struct {
	Repaired []sandbox.Finding `json:"repaired,omitempty"`
	Found    []sandbox.Finding `json:"found"`
}

func newCheckCommand(opts *settings.Flags) *cobra.Command {
	var opt checkOptions
	var output outputFormat
	cmd := &cobra.Command{
		Use: "check", Short: "Compare the records with the machine; exit status 1 if they differ", Args: noArgs,
		Long: `Compare podd's records with the machine and print the differences: resources that leaked (without a
record), resources that are missing (with a record), and records that cannot be read. The exit status is 1 if there are
any.

If the daemon runs, it performs the check, and --repair runs its garbage collection. If the daemon is stopped, --repair
recovers as a start of the daemon would, and also frees the addresses of unknown pods.

With --images podd reads the files of all images and compares them with the digests of the pull. --repair then hides
damaged images until they are pulled again, which fetches only the damaged layers. Their containers keep running.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := opts.Load()
			if err != nil {
				return err
			}
			f, err := check(cmd, l, opt)
			if err != nil {
				return err
			}
			if err := f.print(cmd.OutOrStdout(), output); err != nil {
				return err
			}
			if n := len(f.Found); n > 0 {
				return fmt.Errorf("the records and the machine differ in %d places", n)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&opt.repair, "repair", false, "free leaked resources and correct the records")
	cmd.Flags().BoolVar(&opt.images, "images", false, "also verify the content of all images, which reads them from disk")
	outputFlag(cmd, &output)
	return cmd
}

// checkOptions are the flags of `podd check`.
type checkOptions struct{ repair, images bool }

// check makes the daemon check if it runs, and checks in this process if not.
func check(cmd *cobra.Command, l *settings.Loaded, opt checkOptions) (findings, error) {
	var f findings
	ctx, cancel := context.WithTimeout(cmd.Context(), admin.CheckTimeout)
	defer cancel()
	if daemon := admin.NewClient(admin.SocketPath(l.Run)); daemon.Running() {
		var answer admin.Findings
		err := daemon.Do(ctx, http.MethodPost, "/check", admin.CheckRequest{Repair: opt.repair, Images: opt.images}, &answer)
		f.Found = answer.Items
		return f, err
	}
	_, noRoot := os.Lstat(l.Root)
	_, noRun := os.Lstat(l.Run)
	if errors.Is(noRoot, fs.ErrNotExist) && errors.Is(noRun, fs.ErrNotExist) {
		return f, nil // no podd ran here: the check must not create its directories
	}
	inThisProcess := func(ctx context.Context, n *daemon.Node) (err error) {
		ctx, cancel := context.WithTimeout(ctx, admin.CheckTimeout)
		defer cancel()
		if f.Found, err = n.Engine.Check(ctx); err == nil && opt.repair {
			f.Repaired, f.Found, err = n.Repair(ctx, f.Found)
		}
		if err != nil || !opt.images {
			return err
		}
		damaged, err := n.VerifyImages(ctx, opt.repair)
		f.Found = append(f.Found, damaged...)
		return err
	}
	err := daemon.Offline(cmd.Context(), version, l, cmd.ErrOrStderr(), inThisProcess)
	return f, err
}

func (f findings) print(w io.Writer, output outputFormat) error {
	if output != outputText {
		if f.Found == nil {
			f.Found = []sandbox.Finding{}
		}
		return output.print(w, f)
	}
	out := newTable(w)
	for _, one := range f.Repaired {
		fmt.Fprintf(out, "repaired\t%s\t%s\t%s\t%s\n", one.Problem, one.What, one.ID, one.Detail)
	}
	for _, one := range f.Found {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", one.Problem, one.What, one.ID, one.Detail)
		if remedy := one.Remedy(); remedy != "" {
			fmt.Fprintf(out, "\t--repair would:\t%s\n", remedy)
		}
	}
	if len(f.Found) == 0 {
		fmt.Fprintln(out, "no differences between the records and the machine")
	}
	return out.Flush()
}
