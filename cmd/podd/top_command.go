package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/settings"
)

// shortestInterval is the age up to which the daemon returns the same measurement again.
const shortestInterval = time.Second

// topFlags are the flags of podd top.
type topFlags struct {
	order            topOrder
	once, containers bool
	interval         time.Duration
	output           outputFormat
}

func newTopCommand(opts *settings.Flags) *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use: "top", Short: "Print what pods use: CPU, memory, reads and writes", Args: noArgs,
		Long: `Print the CPU time, memory, reads and writes of the pods that are ready, those that use most first. CPU is in
cores, memory is the working set, reads and writes are bytes per second of block devices. On a terminal the list is
renewed until the command is interrupted; elsewhere, with --once or with -o json or yaml it is printed once, after two
measurements.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			daemon, err := client(opts)
			if err != nil {
				return err
			}
			if err := f.validate(); err != nil {
				return settings.Error{Err: err}
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			f.once = f.once || f.output != outputText || !isTerminal(cmd.OutOrStdout())
			return f.run(ctx, daemon, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	wordFlag(cmd, &f.order, pflag.Flag{Name: "sort", Usage: "sort by this `column`: "},
		"cpu", "memory", "read", "write", "name")
	flags.BoolVar(&f.containers, "containers", false, "print the containers of each pod, too")
	flags.BoolVar(&f.once, "once", false, "print once, also on a terminal")
	flags.DurationVar(&f.interval, "interval", 2*time.Second, "measure after this `time` again, 1s or more")
	outputFlag(cmd, &f.output)
	return cmd
}

func (f topFlags) validate() error {
	if f.interval < shortestInterval {
		return fmt.Errorf("flag --interval: %v is shorter than %v", f.interval, shortestInterval)
	}
	return nil
}

// run prints the list each interval until ctx ends, or once.
func (f topFlags) run(ctx context.Context, daemon *admin.Client, out io.Writer) error {
	before, err := fetchUsage(ctx, daemon)
	if err != nil {
		return err
	}
	for {
		select {
		case <-time.After(f.interval):
		case <-ctx.Done():
			return nil // interrupted by the user
		}
		now, err := fetchUsage(ctx, daemon)
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		pods := topPods(before, now, f.order)
		if f.once {
			return f.print(out, pods)
		}
		if err := f.redraw(out, pods); err != nil {
			return err
		}
		before = now
	}
}

func fetchUsage(ctx context.Context, daemon *admin.Client) (pods []admin.PodUsage, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var answer admin.List[admin.PodUsage]
	err = daemon.Get(ctx, fmt.Sprintf("/usage?limit=%d", admin.MaxLimit), &answer)
	return answer.Items, err
}

func (f topFlags) print(w io.Writer, pods []topItem) error {
	if f.output != outputText {
		return f.output.print(w, pods)
	}
	return printTop(w, topLines(pods, f.containers))
}

// clearScreen moves a terminal's cursor to its first line and clears everything below.
const clearScreen = "\x1b[H\x1b[J"

// aroundTop is the number of a terminal's lines that the list cannot use: three above it, one that says how many more
// there are, and one for the cursor.
const aroundTop = 5

// redraw clears the terminal and prints as many lines as it has room for.
func (f topFlags) redraw(w io.Writer, pods []topItem) error {
	lines := topLines(pods, f.containers)
	room := len(lines)
	if file, ok := w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ); err == nil && size.Row > aroundTop {
			room = int(size.Row) - aroundTop
		}
	}
	shown := lines[:min(room, len(lines))]
	fmt.Fprintf(w, "%s%d pods, %s\n\n", clearScreen, len(pods), time.Now().Format(time.TimeOnly))
	if err := printTop(w, shown); err != nil || len(shown) == len(lines) {
		return err
	}
	_, err := fmt.Fprintf(w, "%d more\n", len(lines)-len(shown))
	return err
}

func printTop(w io.Writer, lines []topItem) error {
	out := newTable(w)
	fmt.Fprintln(out, "CPU\tMEMORY\tREAD/S\tWRITE/S\tPOD")
	for _, l := range lines {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\n", cores(l.CPU), amount(l.Memory), amount(l.Read), amount(l.Write),
			oneLine(l.Name))
	}
	return out.Flush()
}

// cores returns nanoseconds of CPU time per second as a number of cores, "-" if it is not known.
func cores(n *uint64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f", float64(*n)/1e9)
}

// amount returns a number of bytes, "-" if it is not known.
func amount(n *uint64) string {
	if n == nil {
		return "-"
	}
	return humanSize(*n)
}
