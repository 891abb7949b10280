package runc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/oci/runc"
)

// BenchmarkLife is create, start, wait and delete of a container that runs true; BenchmarkBareLife the same by
// hand, without a monitor, a log or an exit status: the floor.
func BenchmarkLife(b *testing.B) {
	for _, name := range []string{"runc", "crun"} {
		b.Run(name, func(b *testing.B) {
			m := ocitest.Real(b, name)
			r, ctx := runc.New(m.Config), context.Background()
			must(b, "probe", r.Probe(ctx))
			log := ocitest.LogAt(filepath.Join(m.LogDir, "0.log"))
			for i := range b.N {
				id := fmt.Sprintf("c%d", i)
				_, err := r.Create(ctx, oci.CreateRequest{ID: id, Spec: m.Spec("true"), Log: log})
				must(b, "create", err)
				must(b, "start", r.Start(ctx, id))
				_, err = r.Wait(ctx, id)
				must(b, "wait", err)
				must(b, "delete", r.Delete(ctx, id))
			}
		})
	}
}

func BenchmarkBareLife(b *testing.B) {
	for _, name := range []string{"runc", "crun"} {
		b.Run(name, func(b *testing.B) {
			m := ocitest.Real(b, name)
			config, err := json.Marshal(m.Spec("true"))
			must(b, "encode", err)
			must(b, "write", os.WriteFile(filepath.Join(m.LogDir, "config.json"), config, 0o600))
			verb := func(args ...string) {
				cmd := exec.Command(m.Config.Path, append([]string{"--root", m.Config.Root}, args...)...)
				cmd.Dir = m.LogDir
				must(b, args[0], cmd.Run())
			}
			for i := range b.N {
				id := fmt.Sprintf("c%d", i)
				verb("create", id)
				verb("start", id)
				for exec.Command(m.Config.Path, "--root", m.Config.Root, "delete", id).Run() != nil {
					// still running
				}
			}
		})
	}
}

// BenchmarkKill is Delete of a running container: runc's own delete --force sleeps 100 ms.
func BenchmarkKill(b *testing.B) {
	for _, name := range []string{"runc", "crun"} {
		b.Run(name, func(b *testing.B) {
			m := ocitest.Real(b, name)
			r, ctx := m.New(), context.Background()
			for i := range b.N {
				b.StopTimer()
				id := fmt.Sprintf("c%d", i)
				_, err := r.Create(ctx, oci.CreateRequest{ID: id, Spec: m.Spec("sleep", "1000")})
				must(b, "create", err)
				must(b, "start", r.Start(ctx, id))
				b.StartTimer()
				must(b, "delete", r.Delete(ctx, id))
			}
		})
	}
}

// BenchmarkExec is ExecSync of true as a probe, with a timeout; BenchmarkBareExec the runtime's own exec, run by hand.
func BenchmarkExec(b *testing.B) {
	for _, name := range []string{"runc", "crun"} {
		b.Run(name, func(b *testing.B) {
			m := ocitest.Real(b, name)
			r := m.New()
			start(b, r, oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000")})
			process := m.Spec("true").Process
			b.ResetTimer()
			for range b.N {
				_, err := r.ExecSync(context.Background(), oci.ExecRequest{ID: "c", Process: process, Timeout: time.Minute})
				must(b, "exec", err)
			}
		})
	}
}

func BenchmarkBareExec(b *testing.B) {
	for _, name := range []string{"runc", "crun"} {
		b.Run(name, func(b *testing.B) {
			m := ocitest.Real(b, name)
			start(b, m.New(), oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000")})
			process, err := json.Marshal(m.Spec("true").Process)
			must(b, "encode", err)
			path := filepath.Join(m.LogDir, "process.json")
			must(b, "write", os.WriteFile(path, process, 0o600))
			b.ResetTimer()
			for range b.N {
				_, err := exec.Command(m.Config.Path, "--root", m.Config.Root, "exec", "--process", path, "c").CombinedOutput()
				must(b, "exec", err)
			}
		})
	}
}

// BenchmarkState measures a call that the daemon makes for every container when it starts.
func BenchmarkState(b *testing.B) {
	m := ocitest.Real(b, "runc")
	r := m.New()
	start(b, r, oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000")})
	b.ResetTimer()
	for range b.N {
		_, err := r.State(context.Background(), "c")
		must(b, "state", err)
	}
}
