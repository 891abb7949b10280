package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/bundle"
	"github.com/podd-project/podd/cmd/podd/daemon"
	"github.com/podd-project/podd/cmd/podd/history"
	"github.com/podd-project/podd/cmd/podd/settings"
)

// bundleHistory is the number of operations in a bundle.
const bundleHistory = 1000

func newBundleCommand(opts *settings.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "bundle [FILE]", Short: "Collect the data for a report about a problem, without secrets",
		Args: cobra.MaximumNArgs(1),
		Long: `Write a new tar.gz, podd-bundle-<host>-<time>.tar.gz by default, with the version, configuration, status,
the history of operations, the findings of "podd check" and "podd config check --node", goroutines, a heap profile,
the last lines of the unit's journal, and facts about the machine. The daemon need not run.

It has names of pods and images, but neither variables nor commands of containers. Credentials of auth_file,
values of environment variables in the configuration, and what looks like a credential are removed. Read it before you
send it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if os.Geteuid() != 0 {
				return errors.New("this command must run as root")
			}
			host, err := os.Hostname()
			if err != nil {
				return err
			}
			name := fmt.Sprintf("podd-bundle-%s-%s", host, time.Now().UTC().Format("20060102T150405Z"))
			file := name + ".tar.gz"
			if len(args) > 0 {
				file = args[0]
			}
			if err := writeBundle(cmd.Context(), opts, file, name); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), file)
			return err
		},
	}
}

// writeBundle writes a new file, which only root can read, and removes it after an error.
func writeBundle(ctx context.Context, opts *settings.Flags, file, dir string) (err error) {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			_ = os.Remove(file)
		}
	}()
	daemon, err := client(opts)
	if err != nil {
		return err
	}
	var secrets bundle.Scrubber
	c := collector{opts: opts, daemon: daemon}
	if c.loaded, c.broken = opts.Load(); c.broken == nil {
		hideVariables(&secrets, c.loaded)
	}
	return bundle.Write(ctx, out, dir, &secrets, c.items())
}

// hideVariables makes s know the secrets of the configuration, and removes the values of variables from it.
func hideVariables(s *bundle.Scrubber, l *settings.Loaded) {
	s.KnowAuthFile(l.Image.AuthFile)
	s.KnowEnv(l.Runtime.Env...)
	for i, e := range l.Runtime.Env {
		name, _, _ := strings.Cut(e, "=")
		l.Runtime.Env[i] = name + "=[removed]"
	}
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasSuffix(strings.ToLower(name), "_proxy") && strings.Contains(e, "@") {
			s.KnowEnv(e)
		}
	}
}

// collector collects the items of a bundle.
type collector struct {
	opts   *settings.Flags
	daemon *admin.Client
	// loaded is the configuration, nil if broken says why it cannot be read.
	loaded *settings.Loaded
	broken error
}

func (c collector) items() []bundle.Item {
	items := []bundle.Item{
		{Name: "version.txt", Collect: func(context.Context) ([]byte, error) { return []byte(version + "\n"), nil }},
		{Name: "config.toml", Collect: c.config},
		{Name: "node.txt", Collect: c.node},
		{Name: "history.json", Collect: c.history},
		{Name: "check.json", Collect: c.check},
		{Name: "journal.log", Collect: journal},
		{Name: "goroutines.txt", Collect: c.get("/pprof/goroutine?debug=2")},
		{Name: "heap.pprof", Collect: c.get("/pprof/heap"), Binary: true},
	}
	for _, resource := range []string{"status", "operations", "budgets", "pulls", "sessions", "disk"} {
		items = append(items, bundle.Item{Name: resource + ".json", Collect: c.get("/" + resource)})
	}
	for name, path := range map[string]string{
		"kernel.txt": "/proc/version", "os-release.txt": "/etc/os-release", "meminfo.txt": "/proc/meminfo",
		"loadavg.txt":     "/proc/loadavg",
		"pressure-io.txt": "/proc/pressure/io", "pressure-memory.txt": "/proc/pressure/memory",
		"filesystems.txt": "/proc/filesystems", "cgroups.txt": "/proc/cgroups",
	} {
		items = append(items, bundle.Item{
			Name: "machine/" + name, Collect: func(context.Context) ([]byte, error) { return os.ReadFile(path) },
		})
	}
	slices.SortStableFunc(items, func(a, b bundle.Item) int { return strings.Compare(a.Name, b.Name) })
	return items
}

// get returns a function that asks the daemon.
func (c collector) get(path string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		body, err := c.daemon.Open(ctx, "GET", path, nil)
		if err != nil {
			return nil, err
		}
		defer body.Close()
		return io.ReadAll(body)
	}
}

// config is the effective configuration, with the origin of each key.
func (c collector) config(context.Context) ([]byte, error) {
	if c.broken != nil {
		return nil, c.broken
	}
	var out bytes.Buffer
	err := c.loaded.Dump(&out)
	return out.Bytes(), err
}

// node is the report of `podd config check --node`.
func (c collector) node(ctx context.Context) ([]byte, error) {
	if c.broken != nil {
		return nil, c.broken
	}
	report, err := daemon.Inspect(ctx, c.loaded)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = report.Print(&out)
	return out.Bytes(), err
}

func (c collector) history(ctx context.Context) ([]byte, error) {
	if c.broken != nil {
		return nil, c.broken
	}
	h, err := fetchHistory(ctx, c.loaded, history.Query{Limit: bundleHistory})
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(h, "", "  ")
}

// check compares the records with the machine, and changes nothing.
func (c collector) check(ctx context.Context) ([]byte, error) {
	var found admin.Findings
	if err := c.daemon.Do(ctx, "POST", "/check", admin.CheckRequest{}, &found); err != nil {
		return nil, err
	}
	return json.MarshalIndent(found, "", "  ")
}

// journal returns the last lines of the unit's log.
func journal(ctx context.Context) ([]byte, error) {
	out, err := exec.CommandContext(ctx, "journalctl", "--unit=podd.service", "--lines=5000", "--no-pager",
		"--output=short-iso-precise").Output()
	if err != nil {
		return nil, fmt.Errorf("journalctl: %w", err)
	}
	return out, nil
}
