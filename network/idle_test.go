package network_test

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/network/networktest"
)

// TestSkipIdlePlugins has plugins that crash when they are run.
func TestSkipIdlePlugins(t *testing.T) {
	const limit = `{"type":"bandwidth","ingressRate":1000000,"ingressBurst":1000000}`
	for name, test := range map[string]struct {
		off     bool
		plugins []string
		request network.Request
		another bool   // portmap is a program of that name
		ran     string // the plugin that is run
	}{
		"idle":       {plugins: []string{portmap, bandwidth}},
		"option off": {off: true, plugins: []string{portmap}, ran: "portmap"},
		"host ports": {plugins: []string{portmap}, request: network.Request{Ports: oneHostPort}, ran: "portmap"},
		"limits of the pod": {
			plugins: []string{bandwidth}, request: network.Request{Bandwidth: oneLimit}, ran: "bandwidth",
		},
		"limits for all pods":    {plugins: []string{limit}, ran: "bandwidth"},
		"other plugins":          {plugins: []string{firewall}, ran: "firewall"},
		"a program of that name": {plugins: []string{portmap}, another: true, ran: "portmap"},
	} {
		t.Run(name, func(t *testing.T) {
			b := networktest.NewBridge(t, "1.0.0", test.plugins...)
			cfg := b.Config()
			bin := t.TempDir()
			cfg.BinDirs, cfg.SkipIdlePlugins = append([]string{bin}, cfg.BinDirs...), !test.off
			crashing(t, bin, "portmap", "bandwidth", "firewall")
			if test.another {
				replaceByAnother(t, filepath.Join(bin, "portmap"))
			}
			c := start(t, b.StateDir, cfg)
			r := request(t, "pod1")
			r.Ports, r.Bandwidth = test.request.Ports, test.request.Bandwidth
			result, err := c.Setup(t.Context(), r)
			if test.ran == "" {
				if err != nil || len(result.IPs) != 2 {
					t.Fatalf("Setup = %v, %v, want two addresses and no crash", result, err)
				}
			} else {
				if err == nil || !strings.Contains(err.Error(), "CNI plugin "+test.ran+": ") {
					t.Fatalf("Setup = %v, %v, want that %s is run", result, err, test.ran)
				}
				if err := c.Teardown(t.Context(), r.PodID); err == nil || !strings.Contains(err.Error(), test.ran) {
					t.Fatalf("Teardown = %v, want that %s is run", err, test.ran)
				}
				removeAll(t, bin) // the plugins that work are found now
			}
			teardown(t, c, r.PodID)
		})
	}
}

var (
	oneHostPort = []network.PortMapping{{HostPort: 18082, ContainerPort: 8080, Protocol: "tcp"}}
	oneLimit    = &network.Bandwidth{Ingress: 10_000_000}
)

// crashing makes copies of the plugins whose first instruction is not valid.
func crashing(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		program, err := os.ReadFile(filepath.Join(networktest.Plugins(t), name))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		clear(program[entry(t, filepath.Join(networktest.Plugins(t), name)):][:16])
		if err := os.WriteFile(path, program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// entry returns the offset of a program's first instruction in its file.
func entry(t *testing.T, path string) uint64 {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Vaddr <= f.Entry && f.Entry < p.Vaddr+p.Filesz {
			return f.Entry - p.Vaddr + p.Off
		}
	}
	t.Fatalf("%s has no segment with its entry point", path)
	return 0
}

func replaceByAnother(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func removeAll(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}
