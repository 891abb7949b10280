package server

import (
	"context"
	"path"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func checkCheckpointPod(ctx context.Context, r *cri.CheckpointPodRequest) error {
	c := newCheck()
	_, limited := ctx.Deadline()
	c.that(limited, "deadline", "must be set by the caller")
	c.id("pod_sandbox_id", r.GetPodSandboxId())
	c.directory("output_path", r.GetOutputPath())
	ids := r.GetContainerIds()
	c.that(len(ids) > 0, "container_ids", "must not be empty")
	c.count("container_ids", len(ids))
	named := map[string]bool{}
	for i, id := range ids {
		c.item("container_ids", i).id("", id)
		c.that(!named[id], "container_ids", "must not contain an id twice")
		named[id] = true
	}
	c.noOptions(r.GetOptions())
	return c.err()
}

func checkCheckpointContainer(r *cri.CheckpointContainerRequest) error {
	c := newCheck()
	c.id("container_id", r.GetContainerId())
	c.directory("location", r.GetLocation())
	c.that(r.GetLocation() != "/", "location", "must be the path of a file")
	c.that(r.GetTimeout() >= 0, "timeout", "must not be negative")
	return c.err()
}

func checkRestorePod(r *cri.RestorePodRequest) error {
	c := newCheck()
	c.directory("checkpoint_path", r.GetCheckpointPath())
	c.podConfig("config", r.GetConfig())
	c.line("runtime_handler", r.GetRuntimeHandler(), maxName)
	configs := r.GetContainerConfigs()
	c.that(len(configs) > 0, "container_configs", "must not be empty")
	c.count("container_configs", len(configs))
	privileged := r.GetConfig().GetLinux().GetSecurityContext().GetPrivileged()
	named := map[string]bool{}
	for i, config := range configs {
		c := c.item("container_configs", i)
		c.containerConfig("", config)
		name := config.GetMetadata().GetName()
		c.that(!named[name], "metadata.name", "must not be that of another container")
		named[name] = true
		c.that(privileged || !config.GetLinux().GetSecurityContext().GetPrivileged(),
			"linux.security_context.privileged", "must not be set in a pod that is not privileged")
	}
	c.noOptions(r.GetOptions())
	return c.err()
}

// directory is the absolute path of a directory, without parts that have no effect.
func (c check) directory(field, s string) {
	c.absolute(field, s)
	c.that(path.Clean(s) == s, field, "must be a clean path: without .., //, and / at its end")
}

// noOptions refuses all options, as CRI requires of those that are not known.
func (c check) noOptions(options map[string]string) {
	c.that(len(options) == 0, "options", "are not supported, want none")
}
