package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/settings"
)

func newStatusCommand(opts *settings.Flags) *cobra.Command {
	var verbose bool
	var output outputFormat
	cmd := &cobra.Command{
		Use: "status [POD]", Short: "Print problems and operations of the running daemon, or one pod", Args: atMostOne,
		ValidArgsFunction: completePod(opts),
		Long: `Print the problems of the node and its pods, each with the command that shows more, then the operations, pulls
and sessions in progress. With POD, the beginning of an id or NAMESPACE/NAME, print that pod with its last operations
and the duration of each stage, and why it could not be checkpointed: with CRIU also the open files of its processes.
The pod is not frozen for that, so a checkpoint may find more.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			daemon, err := client(opts)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			defer cancel()
			pod := strings.Join(args, "")
			s, err := fetchStatus(ctx, daemon, pod)
			if err != nil {
				return err
			}
			switch {
			case output != outputText:
				return output.print(cmd.OutOrStdout(), s.Status)
			case pod != "":
				return s.printPods(cmd.OutOrStdout())
			}
			return s.print(cmd.OutOrStdout(), verbose)
		},
	}
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "also print the budgets and all pods")
	outputFlag(cmd, &output)
	return cmd
}

// fetchStatus gets the status of the daemon, of one pod if pod is not empty.
func fetchStatus(ctx context.Context, daemon *admin.Client, pod string) (s nodeStatus, err error) {
	path := fmt.Sprintf("/status?limit=%d&pod=%s", admin.MaxLimit, url.QueryEscape(pod))
	err = daemon.Get(ctx, path, &s.Status)
	return s, err
}

// nodeStatus is the output of `podd status`.
type nodeStatus struct{ admin.Status }

// print writes s as text: problems first.
func (s nodeStatus) print(w io.Writer, verbose bool) error {
	out := newTable(w)
	verdict := fmt.Sprintf("%d problems", len(s.Problems))
	switch len(s.Problems) {
	case 0:
		verdict = "no problems"
	case 1:
		verdict = "1 problem"
	}
	fmt.Fprintf(out, "podd %s on %s, up %s: %s\n", s.Version, s.Host, age(time.Since(s.Started)), verdict)
	for _, p := range s.Problems {
		fmt.Fprintf(out, "  %s\t%s\t(%s)\n", cmp.Or(p.Name, "node"), oneLine(p.Text), p.Next)
	}
	fmt.Fprintln(out)
	s.printConfiguration(out)
	for _, c := range s.Conditions {
		fmt.Fprintf(out, "%s: %t %s\n", c.Type, c.Ready, c.Message)
	}
	s.printCounts(out)
	s.printOperations(out)
	s.printPulls(out)
	s.printSessions(out)
	s.printPlugins(out)
	if verbose {
		s.printBudgets(out)
		fmt.Fprintf(out, "\nPods: %d\n", len(s.Pods))
		for _, p := range s.Pods {
			fmt.Fprintf(out, "  %.13s\t%s\t%s\t%d containers\n", p.ID, p.Name, p.State, len(p.Containers))
		}
	}
	return out.Flush()
}

// age returns a duration in the two largest units.
func age(d time.Duration) string {
	if d >= 24*time.Hour {
		return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
	}
	if d >= time.Hour {
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return d.Round(time.Second).String()
}

// printCounts prints the numbers of pods and containers in each state.
func (s nodeStatus) printCounts(w io.Writer) {
	pods, containers := map[string]int{}, map[string]int{}
	for _, p := range s.Pods {
		pods[p.State]++
		for _, c := range p.Containers {
			containers[c.State]++
		}
	}
	fmt.Fprintf(w, "pods: %d%s, containers: %d%s\n", len(s.Pods), states(pods), sum(containers), states(containers))
	if s.Disk.Size > 0 {
		fmt.Fprintf(w, "disk: %s of %s free\n", humanSize(s.Disk.Free), humanSize(s.Disk.Size))
	}
}

func sum(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}

// states lists how many are in each state.
func states(counts map[string]int) string {
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[state], state))
	}
	if parts == nil {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// printPods writes the pods with their last operations.
func (s nodeStatus) printPods(w io.Writer) error {
	out := newTable(w)
	for _, p := range s.Pods {
		fmt.Fprintf(out, "%.13s\t%s\t%s\t%d containers\n", p.ID, p.Name, p.State, len(p.Containers))
		printWaterfall(out, p.Operations)
		for _, c := range p.Containers {
			fmt.Fprintf(out, "  %.13s\t%s\t%s\t\n", c.ID, c.Name, containerState(c))
			printWaterfall(out, c.Operations)
		}
		for _, why := range p.Obstacles {
			fmt.Fprintf(out, "  no checkpoint: %s\n", oneLine(why))
		}
	}
	return out.Flush()
}

// containerState returns the state of a container, and why it has exited.
func containerState(c admin.Container) string {
	if c.Reason == "" {
		return c.State
	}
	return c.State + ": " + oneLine(c.Exit())
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
		fmt.Fprintf(w, "  %s\t%.13s\tage %v\tidle %v\trequest %s\n", one.Kind, cmp.Or(one.Container, one.Pod),
			time.Since(one.Started).Round(time.Second), idle, one.Request)
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
