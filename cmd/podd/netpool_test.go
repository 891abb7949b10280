package main

import (
	"testing"

	"github.com/podd-project/podd/sandbox/operation"
)

// TestBeforePool: starts and stops of pods come before the pool of networks, what may take hours does not.
func TestBeforePool(t *testing.T) {
	for verb, want := range map[string]bool{
		operation.RunPod: true, operation.RestorePod: true, operation.CreateContainer: true,
		operation.StartContainer: true, operation.StopPod: true,
		operation.ExecSync: false, operation.StopContainer: false, operation.CheckpointPod: false,
	} {
		if got := beforePool(operation.Operation{Verb: verb}); got != want {
			t.Errorf("beforePool(%s) = %t, want %t", verb, got, want)
		}
	}
}
