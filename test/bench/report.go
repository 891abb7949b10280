package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }

func mb(n uint64) string { return fmt.Sprintf("%.2f", float64(n)/(1<<20)) }

// printMachine prints what the numbers depend on. The OCI runtimes and conmon are those that all servers use.
func printMachine(p plan, host peerHost) {
	var u unix.Utsname
	kernel := "?"
	if unix.Uname(&u) == nil {
		kernel = unix.ByteSliceToString(u.Release[:])
	}
	var versions []string
	for _, h := range p.handlers {
		versions = append(versions, host.programVersion(h))
	}
	versions = append(versions, host.monitorVersion())
	fmt.Printf("Machine: %s, %d CPUs, kernel %s, files on %s, load before %s, %s. %s. %d rounds, %d callers.\n\n",
		cpuModel(), runtime.NumCPU(), kernel, fileSystem(), load(), runtime.Version(), strings.Join(versions, ", "),
		p.rounds, p.callers)
}

func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "?"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "?"
}

func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	one, _, _ := strings.Cut(string(data), " ")
	return one
}

// printLife prints the steps by hand, and the calls of each server with the ratios to the floor.
func (b *bench) printLife(handler string, l lives) {
	fmt.Printf("### One pod with one container, %s, p50 (p99) in ms of %d rounds\n\n| by hand | ms |\n|---|---:|\n",
		b.where(handler), b.rounds)
	byHand, servers, byServer := l.byHand, l.servers, l.byServer
	for _, n := range byHand.names {
		fmt.Printf("| %s | %s (%s) |\n", n, ms(byHand.quantile(n, 0.5)), ms(byHand.quantile(n, 0.99)))
	}
	fmt.Print("\n| |")
	for _, s := range servers {
		fmt.Printf(" %s | x floor |", s.name)
	}
	fmt.Print("\n|---|" + strings.Repeat("---:|---:|", len(servers)) + "\n")
	if len(servers) == 0 {
		return
	}
	for _, n := range byServer[0].names {
		fmt.Printf("| %s |", n)
		for i := range servers {
			fmt.Printf(" %s (%s) | %s |", ms(byServer[i].quantile(n, 0.5)), ms(byServer[i].quantile(n, 0.99)),
				ratio(&byServer[i], byHand, n))
		}
		fmt.Println()
	}
	fmt.Println()
}

// printStages prints the durations of the stages of podd's creations.
func printStages(s *samples) {
	fmt.Print("| podd's stages | ms |\n|---|---:|\n")
	for _, n := range s.names {
		fmt.Printf("| %s | %s (%s) |\n", n, ms(s.quantile(n, 0.5)), ms(s.quantile(n, 0.99)))
	}
	fmt.Println()
}

// ratio returns the ratio of the medians; empty if the floor has no such step.
func ratio(s, floor *samples, name string) string {
	of := floor.quantile(name, 0.5)
	if of == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", float64(s.quantile(name, 0.5))/float64(of))
}

// churnResult is one table of the churn.
type churnResult struct {
	where         string
	callers, pods int
	rows          []churnRow
}

type churnRow struct {
	name  string
	rate  float64
	times processorTime
	// problem is why the times have only the daemon and the machine.
	problem error
}

// processorByPod is the time of some components, in ms for each pod.
func (r *churnResult) processorByPod(row churnRow, components ...string) float64 {
	var total time.Duration
	for _, c := range components {
		total += row.times[c]
	}
	return milliseconds(total) / float64(r.pods)
}

func (r *churnResult) print() {
	fmt.Printf("### %d pods up and down by %d callers, %s\n\n| | pods/s | x floor | daemon CPU ms/pod "+
		"|\n|---|---:|---:|---:|\n", r.pods, r.callers, r.where)
	var columns []processorColumn
	for _, row := range r.rows {
		fmt.Printf("| %s | %.1f | %.2f | %.1f |\n", row.name, row.rate, row.rate/r.rows[0].rate,
			r.processorByPod(row, daemonRow))
		if row.problem != nil {
			fmt.Printf("\nNo processor time by component of %s: %v\n", row.name, row.problem)
			continue
		}
		columns = append(columns, processorColumn{row.name, row.times, r.pods})
	}
	fmt.Println()
	if len(columns) > 0 {
		printProcessor("pod of the churn, "+r.where, columns)
	}
}

func printIdle(name, handler string, u usage) {
	fmt.Printf("### %s with %s: lists, p50 (p99) in ms of %d (statistics: %d), and memory\n\nIdle before: daemon %s MB, "+
		"other processes %s MB (PSS).\n\n", name, handler, listRounds, statsRounds, mb(u.daemon), mb(u.others))
}

// printSize prints the results of one size; memory for each pod only if each container has a pod of its own.
func printSize(name string, at size, pods int, took *samples, used usage) {
	n := at.containers
	fmt.Printf("| %s, %d containers in %d pods | |\n|---|---:|\n", name, n, pods)
	for _, call := range took.names {
		fmt.Printf("| %s | %s (%s) |\n", call, ms(took.quantile(call, 0.5)), ms(took.quantile(call, 0.99)))
	}
	grown := int64(used.daemon) - int64(at.idle.daemon) // may be negative: a garbage collection
	fmt.Printf("| daemon, MB | %s |\n", mb(used.daemon))
	if n != pods {
		fmt.Println()
		return
	}
	fmt.Printf("| daemon, MB more for each pod | %.3f |\n", float64(grown)/float64(n)/(1<<20))
	fmt.Printf("| other processes, MB for each pod | %.3f |\n\n", float64(used.others)/float64(n)/(1<<20))
}
