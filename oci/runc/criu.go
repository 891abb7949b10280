package runc

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
)

// minCRIU is the oldest CRIU that podd uses. Earlier ones crash when a runtime passes them a file with the option
// network-lock (https://github.com/checkpoint-restore/criu/pull/3051).
const minCRIU = "4.2.1"

// probeCheckpoints returns the kinds of checkpoints that a runtime of this version can make.
func (r *Runtime) probeCheckpoints(ctx context.Context, version string) oci.Checkpoints {
	if ownKernel(version) {
		return oci.Checkpoints{
			Pods: true, NoContainers: "gVisor saves all containers of a pod together, CheckpointPod does that",
		}
	}
	if !strings.HasPrefix(version, "runc ") {
		return oci.Checkpoints{NoPods: "that needs runc or gVisor's runsc", NoContainers: "that needs runc"}
	}
	path, err := r.lookupCRIU(ctx)
	if err == nil {
		_, err = runCommand(ctx, exec.Command(path, "check")) // of the kernel
	}
	if err != nil {
		return oci.Checkpoints{NoPods: err.Error(), NoContainers: err.Error()}
	}
	return oci.Checkpoints{Pods: true, Containers: true}
}

// lookupCRIU returns the path of CRIU: errdefs.ErrNotImplemented if there is none, or an old one.
func (r *Runtime) lookupCRIU(ctx context.Context) (string, error) {
	if r.cfg.CRIU == "" {
		return "", fmt.Errorf("%w: runtime.criu is empty", errdefs.ErrNotImplemented)
	}
	path, err := driver.LookPath(r.cfg.Name, r.cfg.CRIU, r.cfg.SearchPath)
	if err != nil {
		return "", fmt.Errorf("%w: CRIU is not installed: %w", errdefs.ErrNotImplemented, err)
	}
	out, err := runCommand(ctx, exec.Command(path, "--version"))
	if err != nil {
		return "", fmt.Errorf("%w: %w", errdefs.ErrNotImplemented, err)
	}
	version, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if !atLeast(version, "Version: ", minCRIU) {
		return "", fmt.Errorf("%w: %s is %.100q, CRIU %s is needed", errdefs.ErrNotImplemented, path, version, minCRIU)
	}
	return path, nil
}

const (
	// annotationCRIU names the file with the options of CRIU. runc reads it from the config.json with which the
	// container was created, and uses /etc/criu/runc.conf, of the node, without it.
	annotationCRIU = "org.criu.config"
	// optionsCRIU: connections are closed in the saved container, as KEP-5823 requires, and go on in the one that runs.
	// CRIU would lock the network only to keep them, by packet filter rules that stay if it is killed.
	optionsCRIU = "tcp-close\nnetwork-lock skip\n"
	// workDir holds CRIU's log and statistics, which it writes next to the images.
	workDir = "work"
)

func (b bundle) criuOptions() string { return b.File("criu.conf") }

// configureCRIU returns the spec of a container with the name of the file in which Dump writes the options of CRIU.
func (r *Runtime) configureCRIU(b bundle, spec *specs.Spec) *specs.Spec {
	if spec == nil || r.capabilities().features.OwnKernel {
		return spec
	}
	changed := *spec
	if changed.Annotations = maps.Clone(spec.Annotations); changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[annotationCRIU] = b.criuOptions()
	return &changed
}

func (b bundle) writeCRIUOptions() error {
	return os.WriteFile(b.criuOptions(), []byte(optionsCRIU), 0o600)
}

// criuEnvironment is the environment of a runtime that runs this CRIU: runtimes look for it in PATH.
func criuEnvironment(criu string) []string {
	path := "PATH=" + filepath.Dir(criu)
	if rest := os.Getenv("PATH"); rest != "" {
		path += ":" + rest
	}
	return append(driver.Environment(), path) // of two entries the last one counts, see exec.Cmd
}

// readTail returns the end of a log.
func readTail(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > outputLimit {
		_, _ = f.Seek(-outputLimit, io.SeekEnd)
	}
	data, err := io.ReadAll(io.LimitReader(f, outputLimit))
	return string(data), err
}

// criuErrors returns the first errors in a log of CRIU.
func criuErrors(log string) string {
	var lines []string
	for line := range strings.Lines(log) {
		if _, text, ok := strings.Cut(line, "Error ("); ok && !strings.Contains(line, "RLIMIT_NOFILE") {
			_, text, _ = strings.Cut(text, "): ")
			lines = append(lines, strings.TrimSpace(text))
		}
	}
	const most = 4 // later ones follow from these
	return strings.Join(lines[:min(len(lines), most)], "; ")
}
