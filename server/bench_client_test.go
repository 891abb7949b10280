package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// benchClientEnv makes the test binary a client: "<target> <method> <pod>". The client is a process of its own, like
// the kubelet, with its own garbage collector.
const benchClientEnv = "PODD_BENCH_CLIENT"

func TestMain(m *testing.M) {
	if what := os.Getenv(benchClientEnv); what != "" {
		if err := beBenchClient(what); err != nil {
			fmt.Fprintln(os.Stderr, "client:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// benchClient is the parent's handle of the client.
type benchClient struct {
	in  io.Writer
	out *bufio.Scanner
}

func startBenchClient(b *testing.B, target, method, pod string) *benchClient {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), benchClientEnv+"="+strings.Join([]string{target, method, pod}, " "))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close() // ends the client
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	return &benchClient{in, bufio.NewScanner(out)}
}

// ask makes the client run a command and returns how long it took.
func (c *benchClient) ask(b *testing.B, what string) time.Duration {
	if _, err := fmt.Fprintln(c.in, what); err != nil {
		b.Fatal(err)
	}
	if !c.out.Scan() {
		b.Fatalf("no answer from the client: %v", c.out.Err())
	}
	took, err := time.ParseDuration(c.out.Text())
	if err != nil {
		b.Fatal(err)
	}
	return took
}

// beBenchClient runs the commands on its input until it ends.
func beBenchClient(what string) error {
	target, call, _ := strings.Cut(what, " ")
	method, pod, _ := strings.Cut(call, " ")
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage))) // as the kubelet
	if err != nil {
		return err
	}
	defer conn.Close()
	c := cri.NewRuntimeServiceClient(conn)
	var last []proto.Message
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		start := time.Now()
		var took time.Duration
		switch in.Text() {
		case "call":
			last, err = benchCall(c, method, pod)
			took = time.Since(start)
			if n := benchItems(last); err == nil && n != 1000 {
				err = fmt.Errorf("%s: %d items", method, n)
			}
		case "take":
			_, err = benchCall(c, method, pod, grpc.ForceCodecV2(undecoded{}))
			took = time.Since(start)
		case "decode":
			took, err = decoding(last)
		}
		if err != nil {
			return err
		}
		fmt.Println(took)
	}
	return nil
}

// undecoded receives responses without decoding them.
type undecoded struct{}

func (undecoded) Name() string { return "proto" }

func (undecoded) Marshal(v any) (mem.BufferSlice, error) {
	data, err := proto.Marshal(v.(proto.Message))
	return mem.BufferSlice{mem.SliceBuffer(data)}, err
}

func (undecoded) Unmarshal(mem.BufferSlice, any) error { return nil }

// benchItems returns the number of items in a response; a pod's status counts as a full list.
func benchItems(answer []proto.Message) (n int) {
	for _, m := range answer {
		switch m := m.(type) {
		case *cri.ListContainersResponse:
			n += len(m.GetContainers())
		case *cri.ListPodSandboxResponse:
			n += len(m.GetItems())
		case *cri.StreamContainersResponse:
			n += len(m.GetContainers())
		case *cri.StreamPodSandboxesResponse:
			n += len(m.GetPodSandboxes())
		case *cri.PodSandboxStatusResponse:
			n += 1000 * min(1, len(m.GetStatus().GetId()))
		}
	}
	return n
}

// benchCall returns the messages of the response.
func benchCall(
	c cri.RuntimeServiceClient, method, pod string, opts ...grpc.CallOption,
) (answer []proto.Message, err error) {
	ctx := context.Background()
	var m proto.Message
	switch method {
	case "ListContainers":
		m, err = c.ListContainers(ctx, &cri.ListContainersRequest{}, opts...)
	case "ListPodSandbox":
		m, err = c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{}, opts...)
	case "PodSandboxStatus":
		m, err = c.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: pod}, opts...)
	case "StreamContainers":
		s, failed := c.StreamContainers(ctx, &cri.StreamContainersRequest{}, opts...)
		return benchStream(s, failed)
	case "StreamPodSandboxes":
		s, failed := c.StreamPodSandboxes(ctx, &cri.StreamPodSandboxesRequest{}, opts...)
		return benchStream(s, failed)
	default:
		err = fmt.Errorf("no call %q", method)
	}
	return []proto.Message{m}, err
}

func benchStream[M proto.Message](s interface{ Recv() (M, error) }, err error) (answer []proto.Message, _ error) {
	for err == nil {
		var m M
		if m, err = s.Recv(); err == nil {
			answer = append(answer, m)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return answer, err
}

// decoding returns the median time to decode the response.
func decoding(answer []proto.Message) (time.Duration, error) {
	var took []time.Duration
	for range 50 {
		var sum time.Duration
		for _, m := range answer {
			data, err := proto.Marshal(m)
			if err != nil {
				return 0, err
			}
			start := time.Now()
			if err := proto.Unmarshal(data, m.ProtoReflect().New().Interface()); err != nil {
				return 0, err
			}
			sum += time.Since(start)
		}
		took = append(took, sum)
	}
	return median(took), nil
}
