package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Parts of the names of what files measures.
const (
	allNew          = ", all new"
	processorSuffix = ", processor time"
	podUpBesidePull = podUp + " beside a pull"
)

// files measures the pull of an image of many files, compressed in two ways: all of it new, and with all layers but the
// last one present; and the same while another caller brings pods up and down. Once, because it does not depend on the
// handler.
func (b *bench) files(ctx context.Context, handler string) error {
	if handler != b.handlers[0] {
		return nil
	}
	const rounds, warmUp = 3, 1
	if err := b.images.addManyFiles(b.fileCount); err != nil {
		return err
	}
	byServer := make([]samples, len(b.servers))
	for round := range warmUp + rounds {
		if round == warmUp {
			byServer = make([]samples, len(b.servers))
		}
		for i, s := range b.servers {
			for _, how := range fileCompressions {
				if err := s.pullFiles(ctx, handler, string(how), &byServer[i]); err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
			}
			if err := s.pullBesidePods(ctx, handler, &byServer[i]); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	b.printFiles(byServer, rounds)
	b.judgeFiles(byServer)
	return nil
}

// pullFiles pulls an image, with nothing of it present and with most layers present. A pod that prints a line runs
// after the first pull.
func (s *server) pullFiles(ctx context.Context, handler, how string, into *samples) error {
	all, most := manyFiles(how, fileLayers), manyFiles(how, fileLayers-1)
	begin := time.Now()
	if err := s.timedPull(ctx, all, how+allNew, into); err != nil {
		return err
	}
	if err := s.awaitLine(ctx, handler, all); err != nil {
		return err
	}
	into.add(how+allNew+", to the first line", time.Since(begin))
	if err := s.kubelet.removeImages(ctx, all); err != nil {
		return err
	}
	if err := s.kubelet.pull(ctx, most); err != nil {
		return err
	}
	if err := s.timedPull(ctx, all, how+", the last layer new", into); err != nil {
		return err
	}
	return s.kubelet.removeImages(ctx, all, most)
}

// timedPull pulls an image and adds its duration and the daemon's processor time, with that of its children.
func (s *server) timedPull(ctx context.Context, image, name string, into *samples) error {
	begin, cpu := time.Now(), treeCPUSeconds(s.process.Pid())
	if err := s.kubelet.pull(ctx, image); err != nil {
		return err
	}
	into.add(name, time.Since(begin))
	into.add(name+processorSuffix, time.Duration((treeCPUSeconds(s.process.Pid())-cpu)*float64(time.Second)))
	return nil
}

// awaitLine runs a pod of the image whose container prints a line, until the log has it, and removes the pod.
func (s *server) awaitLine(ctx context.Context, handler, image string) error {
	const line = "ready"
	p, err := s.kubelet.upWith(ctx, handler, &timer{}, func(c *cri.ContainerConfig) {
		c.Image = &cri.ImageSpec{Image: image, UserSpecifiedImage: image}
		c.Command = []string{"sh", "-c", "echo " + line + "; exec sleep 1000000"}
	})
	if err != nil {
		return err
	}
	log := filepath.Join(p.config.LogDirectory, "main_0.log")
	for limit := time.Now().Add(callLimit); ; time.Sleep(time.Millisecond) {
		if text, err := os.ReadFile(log); err == nil && strings.Contains(string(text), line) {
			break
		}
		if time.Now().After(limit) {
			return fmt.Errorf("no line in %s", log)
		}
	}
	return s.kubelet.down(ctx, p, &timer{})
}

// pullBesidePods pulls an image while another caller brings pods up and down, one after the other.
func (s *server) pullBesidePods(ctx context.Context, handler string, into *samples) error {
	const pods = 20
	all := manyFiles(string(fileCompressions[0]), fileLayers)
	g, ctx := errgroup.WithContext(ctx)
	var pulled atomic.Bool
	g.Go(func() error {
		for range pods {
			var up timer
			p, err := s.kubelet.up(ctx, handler, &up)
			if err != nil {
				return err
			}
			if err := s.kubelet.down(ctx, p, &timer{}); err != nil {
				return err
			}
			if !pulled.Load() {
				into.add(podUpBesidePull, up.total)
			}
		}
		return nil
	})
	begin := time.Now()
	err := s.kubelet.pull(ctx, all)
	took := time.Since(begin)
	pulled.Store(true)
	if err := g.Wait(); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	into.add("the first one, beside 20 pods", took)
	return s.kubelet.removeImages(context.WithoutCancel(ctx), all)
}

func (k *kubelet) removeImages(ctx context.Context, images ...string) error {
	for _, image := range images {
		request := &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: image}}
		if _, err := k.images.RemoveImage(ctx, request); err != nil {
			return fmt.Errorf("RemoveImage: %w", err)
		}
	}
	return nil
}

func (b *bench) printFiles(byServer []samples, rounds int) {
	fmt.Printf("Pull of an image of %d layers of %d files, from loopback, ms, p50 of %d:\n\n|", fileLayers, b.fileCount,
		rounds)
	for _, s := range b.servers {
		fmt.Printf(" | %s", s.name)
	}
	fmt.Printf(" |\n|---|%s\n", strings.Repeat("---:|", len(b.servers)))
	for _, name := range byServer[0].names {
		fmt.Printf("| %s", name)
		for i := range b.servers {
			fmt.Printf(" | %s", ms(byServer[i].quantile(name, 0.5)))
		}
		fmt.Println(" |")
	}
	fmt.Println()
}
