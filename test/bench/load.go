package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/podd-project/podd/test/daemon"
)

// The archive whose load is measured, and the pods that start meanwhile.
const (
	loadedBytes  = 1 << 30
	loadedLayers = 8
	loadedName   = "registry.test/large:1"
	loadRuns     = 3
	loadPods     = 20
)

// load compares the starts of pods while `podd image load` loads an archive of 1 GiB with those without it, in turn.
func (b *bench) load(ctx context.Context, handler string) error {
	podd := b.servers[0]
	d, ok := podd.process.(*daemon.Daemon)
	if !ok {
		return errors.New("podd is not the first server")
	}
	archive := d.Path("large.tar")
	defer os.Remove(archive)
	if err := writeArchive(archive); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	quiet, busy := &samples{}, &samples{}
	var loads samples
	defer func(before *samples) { podd.stages = before }(podd.stages)
	for range loadRuns {
		podd.stages = quiet
		for range loadPods {
			if err := podd.live(ctx, handler, quiet); err != nil {
				return err
			}
		}
		if err := b.startWhileLoading(ctx, handler, archive, busy, &loads); err != nil {
			return err
		}
	}
	printLoad(handler, quiet, busy, &loads)
	return nil
}

// printLoad prints the durations of a pod's start and of its steps without and with a load.
func printLoad(handler string, quiet, busy, loads *samples) {
	fmt.Printf("### podd image load of 1 GiB, %s: %d pod starts without, %d with it; p50 (p99) in ms\n\n"+
		"| | without | while loading | |\n|---|---:|---:|---:|\n", handler, len(quiet.took[podUp]), len(busy.took[podUp]))
	for _, name := range []string{podUp, "RunPodSandbox", "CreateContainer", "StartContainer"} {
		before, during := quiet.quantile(name, 0.5), busy.quantile(name, 0.5)
		fmt.Printf("| %s | %s (%s) | %s (%s) | %.2f |\n", name, ms(before), ms(quiet.quantile(name, 0.99)), ms(during),
			ms(busy.quantile(name, 0.99)), during.Seconds()/before.Seconds())
	}
	for _, name := range slices.Sorted(maps.Keys(busy.took)) { // the stages
		before, during := quiet.quantile(name, 0.5), busy.quantile(name, 0.5)
		if strings.Contains(name, ": ") && during-before > time.Millisecond {
			fmt.Printf("| %s | %s | %s | %.2f |\n", name, ms(before), ms(during), during.Seconds()/before.Seconds())
		}
	}
	fmt.Printf("\nThe load takes %s ms (p50 of %d).\n\n", ms(loads.quantile("load", 0.5)), loadRuns)
}

// startWhileLoading starts pods as long as loads of the archive are in progress, loadPods at least.
func (b *bench) startWhileLoading(ctx context.Context, handler, archive string, into, loads *samples) error {
	podd := b.servers[0]
	d, _ := podd.process.(*daemon.Daemon)
	for pods := 0; pods < loadPods; {
		loaded, start := make(chan error, 1), time.Now()
		go func() {
			out, err := exec.CommandContext(ctx, filepath.Join("bin", "podd"), "--config", d.Path("podd.toml"),
				"image", "load", archive).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("podd image load: %w: %s", err, out)
			}
			loaded <- err
		}()
		for done := false; !done; {
			took := &samples{}
			podd.stages = took
			if err := podd.live(ctx, handler, took); err != nil {
				return errors.Join(err, <-loaded)
			}
			select {
			case err := <-loaded: // this pod was started in part without a load
				if err != nil {
					return err
				}
				loads.add("load", time.Since(start))
				done = true
			default:
				into.join(took)
				pods++
			}
		}
		if out, err := exec.CommandContext(ctx, "bin/podd", "--config", d.Path("podd.toml"), "image", "prune",
			"--yes").CombinedOutput(); err != nil {
			return fmt.Errorf("podd image prune: %w: %s", err, out)
		}
		if err := podd.kubelet.pull(ctx, busybox); err != nil { // which prune has removed, too
			return err
		}
	}
	return nil
}

// writeArchive writes a docker archive of an image of random bytes, which are not compressed.
func writeArchive(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	out := tar.NewWriter(f)
	var names, ids []string
	for i := range loadedLayers {
		layer := randomLayer(byte(i))
		ids = append(ids, fmt.Sprintf("sha256:%x", sha256.Sum256(layer)))
		names = append(names, strconv.Itoa(i)+".tar")
		if err := addFile(out, names[i], layer); err != nil {
			return err
		}
	}
	config, err := json.Marshal(map[string]any{"architecture": runtime.GOARCH, "os": "linux",
		"rootfs": map[string]any{"type": "layers", "diff_ids": ids}})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{loadedName},
		"Layers": names}})
	if err != nil {
		return err
	}
	return errors.Join(addFile(out, "config.json", config), addFile(out, "manifest.json", manifest), out.Close())
}

// randomLayer returns a tar of one file.
func randomLayer(seed byte) []byte {
	content := make([]byte, loadedBytes/loadedLayers)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(content) // never fails
	var layer bytes.Buffer
	out := tar.NewWriter(&layer)
	_ = errors.Join(addFile(out, "file-"+strconv.Itoa(int(seed)), content), out.Close()) // a buffer does not fail
	return layer.Bytes()
}

func addFile(out *tar.Writer, name string, content []byte) error {
	if err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := out.Write(content)
	return err
}
