package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/image"
)

func newImageLoadCommand(opts *settings.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "load FILE...", Short: "Load images from archives, without a restart", Args: cobra.MinimumNArgs(1),
		Long: `Load all images of OCI archives, docker archives ("docker save") or directories with an OCI layout, also
compressed. Pods can use them at once. They are not pinned: the kubelet may remove them when the disk is full; to keep
them, put the archive into image.preload_dir instead. The signature policy is not applied. The daemon reads the files,
so they must be on its node; "-" is an archive on standard input. To take over the images of another runtime:

  ctr -n k8s.io images export - NAME... | podd image load -
  podman save -m NAME... | podd image load -`,
		RunE: func(cmd *cobra.Command, files []string) error {
			daemon, err := client(opts)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			var failed []error
			for i, file := range files {
				bar := &progressLine{
					out: out, terminal: isTerminal(out), title: fmt.Sprintf("[%d/%d] %s", i+1, len(files), file),
				}
				if err := loadFile(cmd.Context(), daemon, file, cmd.InOrStdin(), bar); err != nil {
					bar.end("not loaded: " + err.Error())
					failed = append(failed, err)
				}
			}
			if len(failed) > 0 {
				return errors.New("not all files were loaded")
			}
			return nil
		},
	}
}

// loadFile loads one file, or standard input for "-", and prints its images.
func loadFile(ctx context.Context, daemon *admin.Client, file string, in io.Reader, bar *progressLine) error {
	path, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	if terminal, ok := in.(*os.File); file == "-" && ok && isTerminal(terminal) {
		return errors.New("standard input is a terminal: pipe an archive into the command")
	}
	stop := everySecondOn(bar, func() { showPulls(ctx, daemon, bar) })
	var loaded admin.Loaded
	if file == "-" {
		loaded, err = daemon.Upload(ctx, in)
	} else {
		err = daemon.Do(ctx, http.MethodPost, "/images/load", admin.LoadRequest{Path: path}, &loaded)
	}
	stop()
	if err != nil {
		return err
	}
	bar.end("loaded")
	for _, i := range loaded.Images {
		printImageNames(bar.out, i.ID, i.Names)
	}
	return nil
}

// everySecondOn calls f at intervals while stop is not called, if the bar is on a terminal.
func everySecondOn(bar *progressLine, f func()) (stop func()) {
	if !bar.terminal {
		return func() {}
	}
	ticker, done, ended := time.NewTicker(time.Second), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ticker.C:
				f()
			case <-done:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(done)
		<-ended
	}
}

// showPulls shows the sum of the copies in progress.
func showPulls(ctx context.Context, daemon *admin.Client, bar *progressLine) {
	var pulls admin.List[image.PullProgress]
	if err := daemon.Get(ctx, "/pulls", &pulls); err != nil {
		return // the command itself will say why
	}
	var sum image.PullProgress
	for _, p := range pulls.Items {
		sum.BytesDone, sum.BytesTotal = sum.BytesDone+p.BytesDone, sum.BytesTotal+p.BytesTotal
	}
	bar.show(sum)
}
