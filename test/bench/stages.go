package main

import (
	"context"
	"encoding/json"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox"
)

// stages adds how long the stages of the pod's creation took, which podd tells in its verbose answers.
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
		var said struct {
			Operations []sandbox.Operation `json:"operations"`
		}
		if err := json.Unmarshal([]byte(info["info"]), &said); err != nil {
			return err
		}
		for _, o := range said.Operations {
			for _, stage := range o.Stages {
				into.add(o.Verb+": "+stage.Name, time.Duration(stage.Took))
			}
		}
	}
	return nil
}
