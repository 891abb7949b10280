package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
)

// idlePlugin is the name of the podd with a plugin.
const idlePlugin = "one idle plugin"

// plugged is a podd of its own, with or without plugins of the Node Resource Interface.
type plugged struct {
	*server
	metrics string // the socket of its metrics
	unplug  func() // disconnects its plugin, if it has one
	samples samples
}

// nri measures what plugins cost: the life of a pod with a podd that serves none, one that has none, and one with a
// plugin that is asked about everything and does nothing. The three take turns. Pods have the network of the node: the
// times of CNI plugins vary by more than plugins of NRI cost.
func (b *bench) nri(ctx context.Context, handler string) (err error) {
	var servers []*plugged
	defer func() {
		for _, s := range slices.Backward(servers) {
			s.unplug()
			err = errors.Join(err, s.close())
		}
	}()
	for _, name := range []string{"NRI off", "no plugin", idlePlugin} {
		s, err := b.startPlugged(ctx, name)
		if s != nil {
			servers = append(servers, s)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for round := range warmUp + b.rounds {
		for i := range servers {
			s := servers[(i+round)%len(servers)] // each is as often the first
			if round == warmUp {
				s.samples = samples{}
			}
			if err := s.live(ctx, handler, &s.samples); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	return printPlugged(ctx, handler, b.rounds, servers)
}

func (b *bench) startPlugged(ctx context.Context, name string) (*plugged, error) {
	s, d, err := b.startPodd(ctx, fmt.Sprintf("nri.enable=%v", name != "NRI off"))
	if s == nil {
		return nil, err
	}
	s.name, s.kubelet.network = name, cri.NamespaceMode_NODE
	p := &plugged{server: s, metrics: d.Path("run", "metrics.sock"), unplug: func() {}}
	if err == nil {
		err = s.kubelet.pull(ctx, busybox)
	}
	if err == nil && name == idlePlugin {
		var unplug func()
		if unplug, err = plugIn(ctx, d); err == nil {
			p.unplug = unplug
		}
	}
	return p, err
}

func printPlugged(ctx context.Context, handler string, rounds int, servers []*plugged) error {
	fmt.Printf("### NRI, %s, p50 in ms of %d rounds; memory is the daemon's PSS in MB\n\n| |", handler, rounds)
	for _, s := range servers {
		fmt.Printf(" %s |", s.name)
	}
	fmt.Print("\n|---|---:|---:|---:|\n")
	for _, step := range servers[0].samples.names {
		fmt.Printf("| %s |", step)
		off := servers[0].samples.quantile(step, 0.5)
		for _, s := range servers {
			took := s.samples.quantile(step, 0.5)
			fmt.Printf(" %s (%+.1f) |", ms(took), float64((took-off).Microseconds())/1000)
		}
		fmt.Println()
	}
	fmt.Print("| plugins' part of pod-up, mean |")
	off := 0.0
	for i, s := range servers {
		took, err := s.pluginTime(ctx)
		if err != nil {
			return err
		}
		if i == 0 {
			off = took
		}
		fmt.Printf(" %.2f (%+.2f) |", 1000*took, 1000*(took-off))
	}
	fmt.Print("\n| memory |")
	for _, s := range servers {
		used, err := s.memory()
		if err != nil {
			return err
		}
		fmt.Printf(" %s |", mb(used.daemon))
	}
	fmt.Print("\n\n")
	return nil
}

// pluginTime returns the seconds that the start of a pod takes for plugins: the mean of the stage "plugins" in each of
// its operations, by podd's metrics. Unlike pod-up it has not the scatter of the network in it. In RunPodSandbox it is
// the last stage and lasts until the record is written, so that only the difference of two podds is due to plugins.
func (p *plugged) pluginTime(ctx context.Context) (float64, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", p.metrics)
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://podd/metrics", nil)
	if err != nil {
		return 0, err
	}
	reply, err := client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("metrics of %s: %w", p.name, err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return 0, err
	}
	return meanStage(string(text), "plugins", "RunPodSandbox", "CreateContainer", "StartContainer")
}

// meanStage adds up the mean durations of a stage in operations, in seconds. Metrics is in Prometheus' text format.
func meanStage(metrics, stage string, operations ...string) (total float64, err error) {
	for _, operation := range operations {
		var sum, count float64
		for line := range strings.Lines(metrics) {
			if !strings.Contains(line, `operation="`+operation+`"`) || !strings.Contains(line, `stage="`+stage+`"`) {
				continue
			}
			name, _, _ := strings.Cut(line, "{")
			value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
			if err != nil {
				return 0, err
			}
			switch name {
			case "podd_operation_stage_duration_seconds_sum":
				sum += value
			case "podd_operation_stage_duration_seconds_count":
				count += value
			}
		}
		if count == 0 {
			return 0, fmt.Errorf("the metrics have no stage %s of %s", stage, operation)
		}
		total += sum / count
	}
	return total, nil
}

// idle is a plugin that is asked about the life of pods and containers, and does nothing.
type idle struct{}

func (*idle) RunPodSandbox(context.Context, *api.PodSandbox) error    { return nil }
func (*idle) StopPodSandbox(context.Context, *api.PodSandbox) error   { return nil }
func (*idle) RemovePodSandbox(context.Context, *api.PodSandbox) error { return nil }

func (*idle) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (
	*api.ContainerAdjustment, []*api.ContainerUpdate, error,
) {
	return nil, nil, nil
}

func (*idle) PostCreateContainer(context.Context, *api.PodSandbox, *api.Container) error {
	return nil
}
func (*idle) StartContainer(context.Context, *api.PodSandbox, *api.Container) error     { return nil }
func (*idle) PostStartContainer(context.Context, *api.PodSandbox, *api.Container) error { return nil }
func (*idle) RemoveContainer(context.Context, *api.PodSandbox, *api.Container) error    { return nil }

func (*idle) StopContainer(context.Context, *api.PodSandbox, *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

// plugIn connects an idle plugin.
func plugIn(ctx context.Context, d *daemon.Daemon) (unplug func(), err error) {
	s, err := stub.New(&idle{}, stub.WithPluginName("idle"), stub.WithPluginIdx("10"),
		stub.WithSocketPath(d.Path("run", "nri", "nri.sock")), stub.WithOnClose(func() {}))
	if err != nil {
		return nil, err
	}
	return s.Stop, s.Start(ctx)
}
