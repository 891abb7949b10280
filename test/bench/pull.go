package main

import (
	"context"
	"fmt"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pull measures the pull of an image of many layers from loopback, once, because it does not depend on the handler.
func (b *bench) pull(ctx context.Context, handler string) error {
	if handler != b.handlers[0] {
		return nil
	}
	byServer := make([]samples, len(b.servers))
	for range 5 {
		for i, s := range b.servers {
			start := time.Now()
			if err := s.kubelet.pull(ctx, manyLayers); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			byServer[i].add("pull", time.Since(start))
			if _, err := s.kubelet.images.RemoveImage(ctx,
				&cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: manyLayers}}); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	fmt.Printf("Pull of an image of %d layers of %d KiB from loopback, p50 of 5:\n\n| | ms |\n|---|---:|\n", layers,
		bytesPerLayer>>10)
	for i, s := range b.servers {
		fmt.Printf("| %s | %s |\n", s.name, ms(byServer[i].quantile("pull", 0.5)))
	}
	fmt.Println()
	return nil
}
