package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/sandbox"
)

// checkTimeout bounds a check and repair, on a machine where something may hang.
const checkTimeout = 10 * time.Minute

// findings is what `podd check` prints, as JSON with -o json.
type findings struct {
	Repaired []sandbox.Finding `json:"repaired,omitempty"`
	Found    []sandbox.Finding `json:"found"`
}

func newCheckCommand(opts *options) *cobra.Command {
	var opt checkOptions
	var output outputFormat
	cmd := &cobra.Command{
		Use: "check", Short: "Compare the records with the machine; exit status 1 when they disagree", Args: noArgs,
		Long: `Compare the records with the machine, and print what leaked (it is there and in no record), what is missing (a record says that it
is there) and which records cannot be read. The exit status is 1 when there is anything.

A running daemon is asked; its garbage collection is what --repair has it do. While it is stopped, --repair does what its start
would do, and frees the addresses of unknown pods besides.

With --images the files of all images are read and compared with what was pulled; --repair then hides the images that have lost
content until they are pulled again, which fetches the damaged layers only. Their containers run on.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := opts.load()
			if err != nil {
				return err
			}
			if err := output.validate(); err != nil {
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
				return fmt.Errorf("%d differences between the records and the machine", n)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&opt.repair, "repair", false, "free what leaked and bring the records into agreement with the machine")
	cmd.Flags().BoolVar(&opt.images, "images", false, "verify the content of all images, too: reads them from disk")
	outputFlag(cmd, &output)
	return cmd
}

// checkOptions are the command's flags.
type checkOptions struct{ repair, images bool }

// check asks the daemon if there is one, and looks itself if not.
func check(cmd *cobra.Command, l *loaded, opt checkOptions) (findings, error) {
	var f findings
	if listening(l.Listen) {
		conn, err := dial(l.Listen)
		if err != nil {
			return f, err
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(cmd.Context(), checkTimeout)
		defer cancel()
		if f.Found, err = ask(ctx, conn, debugCheck, opt.repair); err == nil && opt.images {
			var damaged []sandbox.Finding
			damaged, err = ask(ctx, conn, debugVerifyImages, opt.repair)
			f.Found = append(f.Found, damaged...)
		}
		if err != nil {
			err = fmt.Errorf("ask the daemon at %s: %w", l.Listen, err)
		}
		return f, err
	}
	err := offline(cmd, l, func(ctx context.Context, n *node) (err error) {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		if f.Found, err = n.engine.Check(ctx); err == nil && opt.repair {
			f, err = n.repair(ctx, f.Found)
		}
		if err != nil || !opt.images {
			return err
		}
		damaged, err := examiner{n.engine, n.images}.VerifyImages(ctx, opt.repair)
		f.Found = append(f.Found, damaged...)
		return err
	})
	return f, err
}

// examiner is what looks for differences between records and machine.
type examiner struct {
	*sandbox.Engine
	images *image.Store
}

// VerifyImages reads all images. With mark, those that have lost content are not listed any more.
func (x examiner) VerifyImages(ctx context.Context, mark bool) ([]sandbox.Finding, error) {
	damages, err := x.images.Verify(ctx, mark)
	var found []sandbox.Finding
	for _, d := range damages {
		found = append(found, sandbox.Finding{
			Problem: "damaged", What: "image layer", ID: d.Layer,
			Detail: d.Reason + "; pull again: " + strings.Join(d.Images, ", "),
		})
	}
	return found, err
}

func listening(socket string) bool {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// repair does what the start of a daemon does, and frees lost addresses. It looks again afterwards.
func (n *node) repair(ctx context.Context, before []sandbox.Finding) (findings, error) {
	if err := n.engine.Recover(ctx); err != nil {
		return findings{}, err
	}
	errs := []error{n.engine.Settled(ctx), n.engine.Collect(ctx)}
	for _, f := range before {
		if f.Address() {
			errs = append(errs, n.engine.FreeAddress(ctx, f.ID))
		}
	}
	after, err := n.engine.Check(ctx)
	left := map[sandbox.Finding]bool{}
	for _, f := range after {
		left[f] = true
	}
	done := findings{Found: after}
	for _, f := range before {
		if !left[f] {
			done.Repaired = append(done.Repaired, f)
		}
	}
	return done, errors.Join(append(errs, err)...)
}

func (f findings) print(w io.Writer, output outputFormat) error {
	if output == outputJSON {
		if f.Found == nil {
			f.Found = []sandbox.Finding{}
		}
		return printJSON(w, f)
	}
	out := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
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
		fmt.Fprintln(out, "the records and the machine agree")
	}
	return out.Flush()
}
