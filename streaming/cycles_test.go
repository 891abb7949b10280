package streaming

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestCycles runs a hundred sessions of each kind, or a thousand with SOAK set, eight at a time, over all transports.
// start's cleanup checks for leaks.
func TestCycles(t *testing.T) {
	cycles := 100
	if os.Getenv("SOAK") != "" {
		cycles = 1000
	}
	b := pod()
	b.exec = func(_ context.Context, _ string, cmd []string, s Streams) (int, error) {
		word := make([]byte, 5)
		_, err := io.ReadFull(s.Stdin, word)
		fmt.Fprintf(s.Stdout, "%s %s", word, cmd[0])
		return 7, err
	}
	b.attach = func(ctx context.Context, id string, s Streams) error {
		_, err := b.exec(ctx, id, []string{"attached"}, s)
		return err
	}
	kinds := map[string]func(t *testing.T, r running, i int){
		"exec": func(t *testing.T, r running, i int) {
			tr := transports()[i%3]
			got := tr.stream(t, r.execURL("cmd"), strings.NewReader("hello"), false, nil)
			var exit exec.CodeExitError
			if !errors.As(got.err, &exit) || exit.Code != 7 || got.stdout != "hello cmd" {
				t.Errorf("%s %d: %+v, want %q and exit code 7", tr.name, i, got, "hello cmd")
			}
		},
		"attach": func(t *testing.T, r running, i int) {
			tr := transports()[i%3]
			u := r.url(r.Attach("", &cri.AttachRequest{ContainerId: "c1", Stdin: true, Stdout: true, Stderr: true}))
			got := tr.stream(t, u, strings.NewReader("hello"), false, nil)
			if want := (result{stdout: "hello attached"}); got != want {
				t.Errorf("%s %d: %+v, want %+v", tr.name, i, got, want)
			}
		},
		"port-forward": func(t *testing.T, r running, i int) {
			name := []string{"spdy", "websocket"}[i%2]
			u, _ := url.Parse(r.forwardURL())
			f, stop, ready, err := forwarders[name](u)
			if err != nil {
				t.Error(err)
				return
			}
			done := make(chan struct{})
			go func() { defer close(done); f.ForwardPorts() }()
			select {
			case <-ready:
			case <-done:
				t.Errorf("%s %d: forwarder ended, want it ready", name, i)
				return
			}
			ports, _ := f.GetPorts()
			echo(t, fmt.Sprintf("127.0.0.1:%d", ports[0].Local), "hello")
			silent(t, fmt.Sprintf("127.0.0.1:%d", ports[1].Local))
			close(stop)
			<-done
		},
	}
	for name, cycle := range kinds {
		t.Run(name, func(t *testing.T) {
			r := start(t, b)
			began := time.Now()
			work := make(chan int)
			var workers sync.WaitGroup
			for range 8 {
				workers.Go(func() {
					for i := range work {
						cycle(t, r, i)
					}
				})
			}
			for i := range cycles {
				work <- i
			}
			close(work)
			workers.Wait()
			t.Logf("%d cycles in %v, %d goroutines at the end", cycles, time.Since(began), runtime.NumGoroutine())
			r.noSession()
		})
	}
}

// BenchmarkExec measures one exec, from the request for a URL to the exit code at the client.
func BenchmarkExec(b *testing.B) {
	run := func(context.Context, string, []string, Streams) (int, error) { return 0, nil }
	s, err := New(DefaultConfig(), limitsOf(budgetsFor(DefaultConfig())), backend{exec: run}, discardLog())
	if err != nil {
		b.Fatal(err)
	}
	go s.Serve(context.Background())
	defer s.Close(context.Background())
	for _, tr := range transports() {
		b.Run(tr.name, func(b *testing.B) {
			for b.Loop() {
				u, err := s.Exec("", &cri.ExecRequest{ContainerId: "c1", Stdout: true})
				if err != nil {
					b.Fatal(err)
				}
				executor, err := tr.executor(u)
				if err != nil {
					b.Fatal(err)
				}
				opts := remotecommand.StreamOptions{Stdout: io.Discard}
				if err := executor.StreamWithContext(b.Context(), opts); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
