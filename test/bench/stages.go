package main

import (
	"context"
	"encoding/json"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// operation is the part of an operation in podd's verbose status that is read here.
type operation struct {
	Verb   string
	Stages []struct{ Name, Took string }
}

// stages adds the durations of the stages of the pod's creation, from podd's verbose status.
func (k *kubelet) stages(ctx context.Context, p criPod, into *samples) error {
	pod, err := k.runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: p.pod, Verbose: true})
	if err != nil {
		return err
	}
	container, err := k.runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: p.container, Verbose: true})
	if err != nil {
		return err
	}
	for _, info := range []map[string]string{pod.Info, container.Info} {
		var verbose struct {
			Operations []operation
		}
		if err := json.Unmarshal([]byte(info["info"]), &verbose); err != nil {
			return err
		}
		for _, o := range verbose.Operations {
			for _, stage := range o.Stages {
				took, err := time.ParseDuration(stage.Took)
				if err != nil {
					return err
				}
				into.add(o.Verb+": "+stage.Name, took)
			}
		}
	}
	return nil
}
