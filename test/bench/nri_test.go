package main

import (
	"math"
	"testing"
)

func TestMeanStage(t *testing.T) {
	const metrics = `# HELP podd_operation_stage_duration_seconds Duration of each stage.
podd_operation_stage_duration_seconds_bucket{handler="runc",operation="Run",outcome="ok",stage="plugins",le="1"} 3
podd_operation_stage_duration_seconds_sum{handler="runc",operation="Run",outcome="ok",stage="plugins"} 0.5
podd_operation_stage_duration_seconds_count{handler="runc",operation="Run",outcome="ok",stage="plugins"} 2
podd_operation_stage_duration_seconds_sum{handler="crun",operation="Run",outcome="ok",stage="plugins"} 1
podd_operation_stage_duration_seconds_count{handler="crun",operation="Run",outcome="ok",stage="plugins"} 1
podd_operation_stage_duration_seconds_sum{handler="runc",operation="Run",outcome="ok",stage="network"} 7
podd_operation_stage_duration_seconds_sum{handler="runc",operation="Start",outcome="ok",stage="plugins"} 1e-3
podd_operation_stage_duration_seconds_count{handler="runc",operation="Start",outcome="ok",stage="plugins"} 1
`
	if got, err := meanStage(metrics, "plugins", "Run", "Start"); err != nil || math.Abs(got-0.501) > 1e-9 {
		t.Errorf("meanStage = %v, %v, want 0.501", got, err)
	}
	if _, err := meanStage(metrics, "network", "Start"); err == nil {
		t.Error("meanStage of a stage that is not there = nil error, want one")
	}
}
