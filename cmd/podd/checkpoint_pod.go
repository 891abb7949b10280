package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/sandbox/snapshot"
)

// dialCRI connects to the CRI service of the daemon.
func dialCRI(opts *settings.Flags) (cri.RuntimeServiceClient, func(), error) {
	l, err := opts.Load()
	if err != nil {
		return nil, nil, err
	}
	conn, err := grpc.NewClient("unix://"+l.Listen, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	return cri.NewRuntimeServiceClient(conn), func() { _ = conn.Close() }, nil
}

func newCheckpointCreateCommand(opts *settings.Flags) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "create POD DIR", Short: "Save all running containers of a pod, which runs on", Args: cobra.ExactArgs(2),
		ValidArgsFunction: completePod(opts),
		Long: `Save the memory, the processes and the changed files of all running containers of a pod into DIR, which is made
or is empty. The pod runs on. POD is the beginning of an id, or NAMESPACE/NAME.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[1])
			if err != nil {
				return err
			}
			if args[0] == "" {
				return settings.Error{Err: errors.New("POD is empty")}
			}
			daemon, err := client(opts)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			s, err := fetchStatus(ctx, daemon, args[0])
			if err != nil {
				return err
			}
			runtime, done, err := dialCRI(opts)
			if err != nil {
				return err
			}
			defer done()
			made := os.Mkdir(dir, 0o700)
			if made != nil && !errors.Is(made, os.ErrExist) {
				return made
			}
			r := &cri.CheckpointPodRequest{PodSandboxId: s.Pods[0].ID, OutputPath: dir}
			for _, c := range s.Pods[0].Containers {
				if c.State == "running" {
					r.ContainerIds = append(r.ContainerIds, c.ID)
				}
			}
			if _, err = runtime.CheckpointPod(ctx, r); err != nil && made == nil {
				_ = os.Remove(dir) // podd left nothing in it
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "give up after this `duration`")
	return cmd
}

// restoring is what `podd checkpoint restore` makes pods of.
type restoring struct {
	name, namespace, handler, logs string
	mounts                         map[string]string
	copies                         int
}

func newCheckpointRestoreCommand(opts *settings.Flags) *cobra.Command {
	var r restoring
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "restore DIR", Short: "Start new pods from a checkpoint", Args: cobra.ExactArgs(1),
		Long: `Start new pods from a checkpoint, and print the id of each. Their containers continue where those of the saved
pod were, with new addresses. All copies have the random numbers, tokens and names that were in memory: programs that
need their own have to renew them. A volume of the saved pod has to be given with --mount. Limits, DNS settings, ports,
devices, labels and annotations are not those of the saved pod: the checkpoint does not have them. A kubelet removes
pods that it does not know.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			if r.copies < 1 {
				return settings.Error{Err: fmt.Errorf("flag --copies: %d is less than 1", r.copies)}
			}
			if err := r.makeAbsolute(); err != nil {
				return err
			}
			s, err := snapshot.Inspect(dir)
			if err != nil {
				return err
			}
			runtime, done, err := dialCRI(opts)
			if err != nil {
				return err
			}
			defer done()
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			for i := range r.copies {
				request, err := r.request(dir, s.Manifest, i)
				if err != nil {
					return err
				}
				pod, err := startRestored(ctx, runtime, request)
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), pod)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&r.name, "name", "restored", "`name` of the pod; further copies are called NAME-1, NAME-2 ...")
	flags.StringVar(&r.namespace, "namespace", "default", "`namespace` of the pods")
	flags.StringVar(&r.handler, "handler", "", "runtime `handler` of the saved pod (default: runtime.default_handler)")
	flags.StringVar(&r.logs, "logs", "", "existing `directory` for the logs of the containers (default: no logs)")
	flags.StringToStringVar(&r.mounts, "mount", nil, "`DESTINATION=SOURCE` of a volume (repeatable)")
	flags.IntVar(&r.copies, "copies", 1, "start this `number` of pods")
	flags.DurationVar(&timeout, "timeout", 10*time.Minute, "give up after this `duration`")
	return cmd
}

// makeAbsolute makes the paths of the flags absolute, as podd wants them.
func (r *restoring) makeAbsolute() (err error) {
	if r.logs != "" {
		if r.logs, err = filepath.Abs(r.logs); err != nil {
			return err
		}
	}
	for destination, source := range r.mounts {
		if r.mounts[destination], err = filepath.Abs(source); err != nil {
			return err
		}
	}
	return nil
}

// request is the request for copy number i of a checkpoint, which podd verifies then.
func (r *restoring) request(dir string, m snapshot.Manifest, i int) (*cri.RestorePodRequest, error) {
	name := r.name
	if i > 0 {
		name = fmt.Sprintf("%s-%d", r.name, i)
	}
	pod := &cri.PodSandboxConfig{}
	if err := protojson.Unmarshal(m.Pod, pod); err != nil {
		return nil, fmt.Errorf("read the pod of the checkpoint: %w", err)
	}
	pod.Metadata = &cri.PodSandboxMetadata{Name: name, Namespace: r.namespace, Uid: rand.Text()}
	pod.Hostname = name
	if r.logs != "" {
		pod.LogDirectory = filepath.Join(r.logs, strings.Join([]string{r.namespace, name, pod.Metadata.Uid}, "_"))
	}
	out := &cri.RestorePodRequest{CheckpointPath: dir, Config: pod, RuntimeHandler: r.handler}
	for _, c := range m.Containers {
		config := &cri.ContainerConfig{}
		if err := protojson.Unmarshal(c.Config, config); err != nil {
			return nil, fmt.Errorf("read container %.100q of the checkpoint: %w", c.Name, err)
		}
		config.Metadata, config.Image = &cri.ContainerMetadata{Name: c.Name}, &cri.ImageSpec{Image: c.ImageID}
		if r.logs != "" {
			config.LogPath = c.Name + ".log"
		}
		for _, mount := range config.Mounts {
			source, given := r.mounts[mount.ContainerPath]
			if !given {
				return nil, settings.Error{Err: fmt.Errorf("container %.100q has a volume at %.300q: give its source with "+
					"--mount DESTINATION=SOURCE", c.Name, mount.ContainerPath)}
			}
			mount.HostPath = source
		}
		out.ContainerConfigs = append(out.ContainerConfigs, config)
	}
	return out, nil
}

// startRestored makes the pod and starts its containers, or leaves nothing.
func startRestored(
	ctx context.Context, runtime cri.RuntimeServiceClient, r *cri.RestorePodRequest,
) (_ string, err error) {
	if dir := r.Config.LogDirectory; dir != "" {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return "", err
		}
		defer func() {
			if err != nil {
				_ = os.RemoveAll(dir)
			}
		}()
	}
	made, err := runtime.RestorePod(ctx, r)
	if err != nil {
		return "", err
	}
	for _, c := range made.RestoredContainers {
		if _, err := runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			_, undo := runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: made.PodSandboxId})
			return "", errors.Join(fmt.Errorf("start container %s: %w", c.Name, err), undo)
		}
	}
	return made.PodSandboxId, nil
}
