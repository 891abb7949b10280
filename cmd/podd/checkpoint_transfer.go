package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/image/registry"
	"github.com/podd-project/podd/sandbox/snapshot"
)

func newCheckpointSignCommand(opts *settings.Flags) *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use: "sign DIR --key FILE", Short: "Sign a checkpoint, so that other nodes restore it", Args: cobra.ExactArgs(1),
		Long: `Verify a checkpoint as "podd checkpoint verify" does, and sign its manifest. Nodes that have the public key in
runtime.checkpoint_keys restore it like one of their own. Make the keys with

    openssl genpkey -algorithm ed25519 -out private.pem
    openssl pkey -in private.pem -pubout -out public.pem`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := openCheckpoint(opts, args[0])
			if err != nil {
				return err
			}
			return s.Sign(cmd.Context(), key)
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "`file` with the private key (PEM, PKCS #8, Ed25519)")
	_ = cmd.MarkFlagRequired("key")
	return cmd
}

// transferFlags are those of push and pull.
type transferFlags struct {
	authFile string
	timeout  time.Duration
}

func (f *transferFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.authFile, "authfile", "",
		"`file` with credentials (containers-auth.json(5)), instead of image.auth_file")
	cmd.Flags().DurationVar(&f.timeout, "timeout", time.Hour, "give up after this `duration`")
}

// registries returns the configuration of registries with the credentials of the flags.
func (f *transferFlags) registries(c image.Config) image.Config {
	if f.authFile != "" {
		c.AuthFile = f.authFile
	}
	return c
}

func newCheckpointPushCommand(opts *settings.Flags) *cobra.Command {
	var flags transferFlags
	cmd := &cobra.Command{
		Use: "push DIR HOST/NAME:TAG", Short: "Push a checkpoint to a registry", Args: cobra.ExactArgs(2),
		Long: `Push the checkpoint of a pod to a registry, as an OCI artifact whose images are compressed. Other nodes restore
it if it was signed ("podd checkpoint sign"). It has the memory of the containers, with the secrets in it: the
repository should be a private one. Mirrors and registries without TLS are configured in image.registries_conf.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := opts.Load()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), flags.timeout)
			defer cancel()
			s, err := snapshot.Inspect(args[0])
			if err != nil {
				return err
			}
			parts, err := s.Blobs(ctx)
			if err != nil {
				return err
			}
			var blobs []registry.ArtifactBlob
			for _, p := range parts {
				blobs = append(blobs, registry.ArtifactBlob{Title: p.Name, MediaType: p.MediaType, Write: p.Write})
			}
			digest, err := flags.registries(l.Image).PushArtifact(ctx, args[1], snapshot.ArtifactType, blobs)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), digest)
			return err
		},
	}
	flags.register(cmd)
	return cmd
}

func newCheckpointPullCommand(opts *settings.Flags) *cobra.Command {
	var flags transferFlags
	cmd := &cobra.Command{
		Use: "pull HOST/NAME:TAG DIR", Short: "Pull a checkpoint from a registry", Args: cobra.ExactArgs(2),
		Long: `Pull the checkpoint of a pod, pushed by "podd checkpoint push", into a new or empty directory, for RestorePod.
Before its images are fetched, its seal must be this node's, or its signature by a key in runtime.checkpoint_keys. Every
image is compared with the manifest. HOST/NAME@DIGEST pulls the digest that a push printed.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			trust, cfg, err := checkpointTrust(opts)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), flags.timeout)
			defer cancel()
			ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM) // then it removes its files
			defer stop()
			a, err := image.OpenArtifact(ctx, flags.registries(cfg.Image), args[0], snapshot.ArtifactType)
			if err != nil {
				return err
			}
			defer a.Close()
			if err := receiveCheckpoint(ctx, args[1], trust, a); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), a.Digest)
			return err
		},
	}
	flags.register(cmd)
	return cmd
}

// receiveCheckpoint writes a checkpoint to a directory, which is removed after an error if it was made here.
func receiveCheckpoint(ctx context.Context, dir string, trust snapshot.Trust, from *image.Artifact) error {
	err := os.Mkdir(dir, 0o700)
	made := err == nil
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err = snapshot.Receive(ctx, dir, trust, from.Blob); err != nil && made {
		err = errors.Join(err, os.Remove(dir))
	}
	return err
}
