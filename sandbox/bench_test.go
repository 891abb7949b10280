package sandbox

import (
	"fmt"
	"testing"

	"github.com/podd-project/podd/sandbox/operation"
)

// fullNode is a machine with n pods of one running container, whose engine has died.
func fullNode(b *testing.B, n int) *machine {
	b.Helper()
	m := newMachine(b)
	e, h := makeEngine(b, m, "boot-1")
	must(b, e.Recover(b.Context()))
	for i := range n {
		id := mustCreate(b, e, mustRunPod(b, e, fmt.Sprint("pod-", i)), "main")
		mustStart(b, e, id)
	}
	kill(e, h)
	return m
}

// BenchmarkRecover500 is the start of a daemon on a node of 500 pods up to where it may serve: records are real files,
// the outside answers at once.
func BenchmarkRecover500(b *testing.B) {
	m := fullNode(b, 500)
	b.ReportAllocs()
	for b.Loop() {
		e, h := makeEngine(b, m, "boot-1")
		must(b, e.Recover(b.Context()))
		b.StopTimer()
		if pods, containers := len(e.Pods()), len(e.Containers()); pods != 500 || containers != 500 {
			b.Fatalf("%d pods and %d containers came back", pods, containers)
		}
		kill(e, h)
		b.StartTimer()
	}
}

// BenchmarkOperation is what it costs to name the stages of an operation that nobody observes.
func BenchmarkOperation(b *testing.B) {
	e, _ := makeEngine(b, newMachine(b), "boot-1")
	stages := []string{"record", "image", "log", "rootfs", "volumes", "image volumes", "spec", "create", "verify", "sync"}
	b.ReportAllocs()
	for b.Loop() {
		ctx, active := e.operations.Begin(b.Context(), operation.Operation{Verb: operation.CreateContainer})
		for _, s := range stages {
			operation.SetStage(ctx, s)
		}
		active.End(nil)
	}
}
