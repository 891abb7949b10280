package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/history"
	"github.com/podd-project/podd/cmd/podd/settings"
)

func newHistoryCommand(opts *settings.Flags) *cobra.Command {
	var q history.Query
	var output outputFormat
	var stages bool
	cmd := &cobra.Command{
		Use: "history [POD]", Short: "Print operations that have ended, also of pods that are gone", Args: atMostOne,
		ValidArgsFunction: completePod(opts),
		Long: `Print the operations on pods and containers that have ended, the newest first: also those of pods that are
gone, and of earlier runs of the daemon, which need not run now. POD is the beginning of the id of a pod or container,
or part of NAMESPACE/NAME. REQUEST is the id of the CRI call, as in the log and, with runtime.exec_cgroups, in the names
of cgroups of commands. podd keeps 10,000 operations or more. Of the commands in containers that callers wait for
(ExecSync, probes) it keeps those that failed, one each second at most.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			q.About = strings.Join(args, "")
			l, err := opts.Load()
			if err != nil {
				return err
			}
			if q.Limit < 1 || q.Limit > admin.MaxLimit {
				return settings.Error{Err: fmt.Errorf("flag --limit: %d is not a number from 1 to %d", q.Limit, admin.MaxLimit)}
			}
			h, err := fetchHistory(cmd.Context(), l, q)
			if err != nil {
				return err
			}
			if output != outputText {
				return output.print(cmd.OutOrStdout(), h)
			}
			return printHistory(cmd.OutOrStdout(), h, stages)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.Verb, "verb", "", "only this `verb` of the CRI, for example RunPodSandbox")
	flags.BoolVar(&q.Failed, "failed", false, "only operations that failed")
	flags.DurationVar(&q.Slower, "slower", 0, "only operations that took this `time` or longer, for example 1s")
	flags.IntVar(&q.Limit, "limit", 100, "print at most this `number` of operations")
	flags.BoolVar(&stages, "stages", false, "print the duration of each stage")
	outputFlag(cmd, &output)
	return cmd
}

// fetchHistory asks the daemon if it runs, and reads the files if not.
func fetchHistory(ctx context.Context, l *settings.Loaded, q history.Query) (h admin.History, err error) {
	daemon := admin.NewClient(admin.SocketPath(l.Run))
	if !daemon.Running() {
		return admin.NewHistory(history.Read(history.Dir(l.Root), q)), nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err = daemon.Get(ctx, admin.HistoryPath(q), &h)
	return h, err
}

func printHistory(w io.Writer, h admin.History, stages bool) error {
	if len(h.Items) == 0 {
		fmt.Fprintln(w, "no operations")
	}
	out := newTable(w)
	if len(h.Items) > 0 {
		fmt.Fprintln(out, "BEGAN\tVERB\tREQUEST\tID\tNAME\tTOOK\tOUTCOME\tERROR")
	}
	for _, o := range h.Items {
		fmt.Fprintf(out, "%s\t%s\t%s\t%.13s\t%s\t%s\t%s\t%s\n", o.Began.UTC().Format(time.RFC3339), o.Verb, o.Request,
			cmp.Or(o.Container, o.Pod), o.Name, time.Duration(o.Took), o.Outcome, o.Error)
		for _, s := range o.Stages {
			if stages {
				fmt.Fprintf(out, "  %s\t%s\t|%s|\t\t\t\t\t\n", s.Name, time.Duration(s.Took), bar(s, o.Took))
			}
		}
	}
	if h.Damage != "" {
		fmt.Fprintln(out, "a part of the history cannot be read:", h.Damage)
	}
	return out.Flush()
}
