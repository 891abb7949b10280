package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/image/containerdstore"
	"github.com/podd-project/podd/image/criostore"
)

// importOptions are the flags of `podd image import`.
type importOptions struct{ from, containerd, namespace, crio string }

// Values of --from.
const (
	fromContainerd = "containerd"
	fromCRIO       = "crio"
)

func newImageImportCommand(opts *options) *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use: "import", Short: "Copy the images of another runtime; both must be stopped", Args: noArgs,
		Long: `Copy the images of the runtime that the node had before, so that they need not be pulled again. Both runtimes
must be stopped; pods of podd keep running. Nothing of the other runtime is changed.

Each image is copied as if it were pulled: unpacked in a confined process, within the limits of a pull, its digests
verified, and only if the signature policy accepts it: containerd stores no signatures, CRI-O does. An image that podd
has is not copied again, so the command can be repeated after an interruption. An image that cannot be copied is
skipped, and the exit status is then 1: one of which containerd has no longer all blobs (discard_unpacked_layers), or
that CRI-O has pulled in parts.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := opts.load()
			if err != nil {
				return err
			}
			if o.from != fromContainerd && o.from != fromCRIO {
				return configError{fmt.Errorf("flag --from: %q is neither %s nor %s", o.from, fromContainerd, fromCRIO)}
			}
			if listening(l.Listen) {
				return fmt.Errorf("a daemon listens on %s: stop it first", l.Listen)
			}
			return offline(cmd, l, func(ctx context.Context, n *node) error {
				return o.run(ctx, n.images, cmd.OutOrStdout())
			})
		},
	}
	cmd.Flags().StringVar(&o.from, "from", "", "the other runtime: containerd or crio")
	cmd.Flags().StringVar(&o.crio, "crio-root", "/var/lib/containers/storage",
		"CRI-O's `directory` of images, its key imagestore or else root")
	cmd.Flags().StringVar(&o.containerd, "containerd-root", "/var/lib/containerd",
		"containerd's `directory`, its key root")
	cmd.Flags().StringVar(&o.namespace, "namespace", containerdstore.Namespace, "containerd's namespace of the images")
	return cmd
}

// images returns the images of the other runtime.
func (o importOptions) images(ctx context.Context) (out []image.ImportRequest, err error) {
	if o.from == fromCRIO {
		images, err := criostore.Images(o.crio)
		for _, img := range images {
			out = append(out, image.ImportRequest{
				Names: img.Names, Manifest: v1.Descriptor{Digest: img.Manifest}, Storage: o.crio, Stored: img.ID,
			})
		}
		return out, err
	}
	images, err := containerdstore.Images(ctx, o.containerd, o.namespace)
	for _, img := range images {
		out = append(out, image.ImportRequest{
			Names: img.Names, Manifest: img.Target, Blobs: containerdstore.Blobs(o.containerd),
		})
	}
	return out, err
}

// run imports all images. One that cannot be imported does not keep the others from it.
func (o importOptions) run(ctx context.Context, to *image.Store, out io.Writer) error {
	images, err := o.images(ctx)
	if err != nil {
		return err
	}
	bar := progressLine{out: out, terminal: isTerminal(out)}
	copied, present, failed := 0, 0, 0
	for i, img := range images {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		bar.title = fmt.Sprintf("[%d/%d] %s", i+1, len(images), img.Names[0])
		fresh, err := to.Import(ctx, img, bar.show)
		switch {
		case err != nil:
			failed++
			bar.end("not imported: " + err.Error())
		case fresh:
			copied++
			bar.end("imported")
		default:
			present++
			bar.end("present")
		}
	}
	fmt.Fprintf(out, "%d images imported, %d were present, %d not imported\n", copied, present, failed)
	if failed > 0 {
		return errors.New("not all images were imported: the others are pulled when pods need them")
	}
	return nil
}

// progressLine shows the progress of one image on a line that is rewritten, on a terminal; elsewhere only its end.
type progressLine struct {
	out      io.Writer
	terminal bool
	title    string
}

// clearLine returns to the begin of a terminal's line and clears it.
const clearLine = "\r\x1b[K"

func (l *progressLine) show(p image.PullProgress) {
	if l.terminal {
		fmt.Fprintf(l.out, "%s%s  %s of %s", clearLine, oneLine(l.title), humanSize(p.BytesDone), humanSize(p.BytesTotal))
	}
}

func (l *progressLine) end(how string) {
	if l.terminal {
		fmt.Fprint(l.out, clearLine)
	}
	fmt.Fprintf(l.out, "%s  %s\n", oneLine(l.title), oneLine(how))
}

// oneLine replaces what could move a terminal's cursor: names come from the other runtime's database.
func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, s)
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}
