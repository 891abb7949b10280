package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/settings"
)

func newStatusCommand(opts *settings.Flags) *cobra.Command {
	var pod string
	var output outputFormat
	cmd := &cobra.Command{
		Use: "status", Short: "Print the operations, pods and pending cleanups of the running daemon", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			daemon, err := client(opts)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			defer cancel()
			s, err := fetchStatus(ctx, daemon, pod)
			if err != nil {
				return err
			}
			if output == outputJSON {
				return printJSON(cmd.OutOrStdout(), s.Status)
			}
			return s.print(cmd.OutOrStdout(), pod != "")
		},
	}
	cmd.Flags().StringVar(&pod, "pod", "",
		"print only the pod with this `id` or prefix of an id, with its last operations and the duration of each stage")
	outputFlag(cmd, &output)
	return cmd
}

// fetchStatus gets the status of the daemon.
func fetchStatus(ctx context.Context, daemon *admin.Client, pod string) (s nodeStatus, err error) {
	path := fmt.Sprintf("/status?limit=%d&pod=%s", admin.MaxLimit, url.QueryEscape(pod))
	err = daemon.Get(ctx, path, &s.Status)
	return s, err
}

// nodeStatus is the output of `podd status`.
type nodeStatus struct{ admin.Status }

// print writes s as text.
func (s nodeStatus) print(w io.Writer, detailed bool) error {
	out := newTable(w)
	fmt.Fprintf(out, "podd %s\n", s.Version)
	s.printConfiguration(out)
	for _, c := range s.Conditions {
		fmt.Fprintf(out, "%s: %t %s\n", c.Type, c.Ready, c.Message)
	}
	s.printOperations(out)
	s.printPulls(out)
	s.printSessions(out)
	s.printPlugins(out)
	s.printTroubles(out)
	s.printUnmonitored(out)
	s.printBudgets(out)
	fmt.Fprintf(out, "\nPods: %d\n", len(s.Pods))
	for _, p := range s.Pods {
		fmt.Fprintf(out, "  %.13s\t%s\t%s\t%d containers\n", p.ID, p.Name, p.State, len(p.Containers))
		if !detailed {
			continue
		}
		printWaterfall(out, p.Operations)
		for _, c := range p.Containers {
			fmt.Fprintf(out, "  %.13s\t%s\t%s\t\n", c.ID, c.Name, containerState(c))
			printWaterfall(out, c.Operations)
		}
	}
	return out.Flush()
}

// containerState returns the state of a container, and why it has exited.
func containerState(c admin.Container) string {
	if c.Reason == "" {
		return c.State
	}
	text := fmt.Sprintf("%s: %s, exit code %d", c.State, c.Reason, c.ExitCode)
	if c.Message != "" {
		text += ": " + oneLine(c.Message)
	}
	return text
}

func (s nodeStatus) printConfiguration(w io.Writer) {
	c := s.Configuration
	if c.Error != "" {
		fmt.Fprintf(w, "configuration: generation %d, the last reload was refused: %s\n", c.Generation, c.Error)
		return
	}
	fmt.Fprintf(w, "configuration: generation %d, loaded %s\n", c.Generation, c.Loaded.Format(time.RFC3339))
}

func (s nodeStatus) printOperations(w io.Writer) {
	fmt.Fprintf(w, "\nOperations in progress: %d\n", len(s.Operations))
	for _, o := range s.Operations {
		id := o.Pod
		if o.Container != "" {
			id = o.Container
		}
		fmt.Fprintf(w, "  %s\t%.13s\t%s\t%s\t%s\n", o.Verb, id, o.Name, o.Stage(), time.Duration(o.Took))
	}
}

func (s nodeStatus) printPulls(w io.Writer) {
	if len(s.Pulls) > 0 {
		fmt.Fprintf(w, "\nPulls in progress: %d\n", len(s.Pulls))
	}
	for _, p := range s.Pulls {
		age := time.Since(p.StartedAt).Round(time.Second)
		fmt.Fprintf(w, "  %s\t%s\t%d of %d bytes\t%v\n", p.Ref, p.Stage, p.BytesDone, p.BytesTotal, age)
	}
}

func (s nodeStatus) printSessions(w io.Writer) {
	if len(s.Sessions) > 0 {
		fmt.Fprintf(w, "\nStreaming sessions: %d\n", len(s.Sessions))
	}
	for _, one := range s.Sessions {
		idle := time.Duration(one.IdleSeconds * float64(time.Second)).Round(time.Second)
		fmt.Fprintf(w, "  %s\t%.13s\tage %v\tidle %v\n", one.Kind, cmp.Or(one.Container, one.Pod),
			time.Since(one.Started).Round(time.Second), idle)
	}
}

// printPlugins prints NRI plugins with their call in progress and the numbers of their calls.
func (s nodeStatus) printPlugins(w io.Writer) {
	if len(s.NRI.Plugins)+len(s.NRI.Down) > 0 {
		fmt.Fprintf(w, "\nNRI plugins: %d\n", len(s.NRI.Plugins))
	}
	for _, p := range s.NRI.Plugins {
		var total, refused, failed uint64
		for _, c := range s.NRI.Calls[p.Name] {
			total, refused, failed = total+c.Total, refused+c.Refused, failed+c.Failed
		}
		doing := ""
		if p.Call != "" {
			doing = fmt.Sprintf("%s for %v", p.Call, p.Age.Round(time.Millisecond))
		}
		fmt.Fprintf(w, "  %s\tpid %d\ton failure %s\t%d calls, %d refused, %d failed\t%d waiting\t%s\n",
			p.Name, p.Pid, p.OnFailure, total, refused, failed, p.Waiting, doing)
	}
	for _, name := range slices.Sorted(maps.Keys(s.NRI.Down)) {
		fmt.Fprintf(w, "  %s\tdown\t%s\n", name, s.NRI.Down[name])
	}
}

// printTroubles prints the resources that podd cannot free and the records that it cannot read, by kind.
func (s nodeStatus) printTroubles(w io.Writer) {
	fmt.Fprintf(w, "\nTroubles: %d\n", len(s.Troubles))
	for _, t := range s.Troubles {
		since := ""
		if !t.Since.IsZero() {
			since = "since " + t.Since.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", t.Kind, t.What, cmp.Or(t.Path, fmt.Sprintf("%.13s", t.ID)), since, t.Error)
	}
}

// printUnmonitored prints the containers whose monitor died.
func (s nodeStatus) printUnmonitored(w io.Writer) {
	first := true
	for _, p := range s.Pods {
		for _, c := range p.Containers {
			if !c.Unmonitored {
				continue
			}
			if first {
				fmt.Fprintln(w, "\nContainers whose monitor died (output is no longer logged; recreate them):")
			}
			first = false
			fmt.Fprintf(w, "  %.13s\t%s\t%s\n", c.ID, p.Name, c.Name)
		}
	}
}

// printBudgets prints the use, peak and limit of each budget, in its unit, and how often it refused.
func (s nodeStatus) printBudgets(w io.Writer) {
	if len(s.Budgets) == 0 {
		return
	}
	fmt.Fprintln(w, "\nBudgets:\tin use\tpeak\tlimit\tper owner\trefused")
	for _, b := range s.Budgets {
		owner := ""
		if b.PerOwner > 0 {
			owner = fmt.Sprintf("%d per %s", b.PerOwner, b.Owner)
		}
		fmt.Fprintf(w, "  %s\t%d\t%d\t%d %s\t%s\t%d\n", b.Name, b.InUse, b.Peak, b.Limit, b.Unit, owner, b.Refused)
	}
}
