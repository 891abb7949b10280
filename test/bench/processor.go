package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Rows of a table of processor times.
const (
	daemonRow  = "daemon"
	conmonRow  = "conmon"
	childRow   = "podd's own children"
	initRow    = "containers' init and workload"
	otherRow   = "programs of others"
	callerRow  = "this program: the client, or the maker of pods by hand"
	machineRow = "the whole machine: also kernel threads"
)

// components are the programs that runtimes run, by the names that the kernel gives their processes.
var components = map[string]string{
	"bridge": "bridge", "host-local": "host-local", "portmap": "portmap", "bandwidth": "bandwidth", "loopback": "loopback",
	"iptables": "iptables", "ip6tables": "iptables", "iptables-save": "iptables", "ip6tables-save": "iptables",
	"iptables-restor": "iptables", "ip6tables-resto": "iptables", "xtables-nft-mul": "iptables",
	"conmon": conmonRow, "containerd-shim": "containerd-shim", "pinns": "pinns",
	"runc": "runc", "crun": "crun", "podd": childRow,
	// The first process of a container ends as its workload, whose name it then has. Podd's pods have no pause process.
	workload: initRow, "pause": initRow, "true": initRow,
	"runc:[0:PARENT]": initRow, "runc:[1:CHILD]": initRow, "runc:[2:INIT]": initRow,
}

// processorTime is where processor time went, by component.
type processorTime map[string]time.Duration

// processorMeter measures processor time between its start and its stop.
type processorMeter struct {
	exits   *exits
	problem error // why the kernel does not report exits
	daemon  int   // its pid; 0 if there is none
	// before is the daemon's time at the start; caller and machine are those of this program and of the machine.
	before, caller, machine time.Duration
}

// startMeter starts a measurement of what a server does, or of what is done by hand if that is nil.
func startMeter(s *server) *processorMeter {
	m := &processorMeter{machine: machineTime(), caller: seconds(cpuSeconds(os.Getpid()))}
	if s != nil {
		m.daemon = s.process.Pid()
		m.before = seconds(cpuSeconds(m.daemon))
	}
	m.exits, m.problem = listenExits()
	return m
}

// stop returns the processor times. Processes that have not ended, other than the daemon, are only in the time of the
// whole machine. With an error there are no times but those of the daemon and of the machine.
func (m *processorMeter) stop() (processorTime, error) {
	time.Sleep(settled) // for what ends after its pod, as monitors do
	times := processorTime{}
	if m.problem == nil {
		var list []ended
		list, m.problem = m.exits.close()
		times = byComponent(list, m.daemon)
	}
	times[callerRow] = seconds(cpuSeconds(os.Getpid())) - m.caller
	times[machineRow] = machineTime() - m.machine
	if m.daemon != 0 {
		times[daemonRow] = seconds(cpuSeconds(m.daemon)) - m.before
	}
	return times, m.problem
}

// byComponent adds up the times of ended threads. Those of the daemon are left out: its own time has them.
func byComponent(list []ended, daemon int) processorTime {
	names := map[int]string{} // of processes
	for _, e := range list {
		if e.thread == e.process {
			names[e.process] = e.comm
		}
	}
	times := processorTime{}
	for _, e := range list {
		if e.process == daemon {
			continue
		}
		name, known := names[e.process]
		if !known { // the process still runs
			name = e.comm
		}
		component, known := components[name]
		if !known {
			component = otherRow
		}
		times[component] += e.processor
	}
	return times
}

// outside are the rows that are no part of a server or of the programs that it runs.
var outside = []string{callerRow, otherRow, machineRow}

// sum is the time of the daemon and of all components.
func (t processorTime) sum() (total time.Duration) {
	for name, took := range t {
		if !slices.Contains(outside, name) {
			total += took
		}
	}
	return total
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// machineTime is the time that all processors of the machine have been busy; 0 if it cannot be read.
func machineTime() time.Duration {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), "\n")
	return busy(strings.Fields(first))
}

// busy adds up the fields of a line of /proc/stat: user, nice, system, irq, softirq; not idle and iowait, nor steal.
func busy(fields []string) time.Duration {
	var ticks uint64
	for _, i := range []int{1, 2, 3, 6, 7} {
		if i < len(fields) {
			n, _ := strconv.ParseUint(fields[i], 10, 64)
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / clockTick
}

// processorColumn is the processor time of n things, made by hand or by a server.
type processorColumn struct {
	name  string
	times processorTime
	n     int
}

// printProcessor prints the processor time for each thing by component, the largest first.
func printProcessor(title string, columns []processorColumn) {
	fmt.Printf("### Processor time by component, ms for each %s\n\n| |", title)
	seen := map[string]time.Duration{}
	for _, c := range columns {
		fmt.Printf(" %s |", c.name)
		for name, took := range c.times {
			seen[name] = max(seen[name], took/time.Duration(c.n))
		}
	}
	fmt.Print("\n|---|" + strings.Repeat("---:|", len(columns)) + "\n")
	var names []string
	for name := range seen {
		if !slices.Contains(outside, name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return int(seen[b] - seen[a]) })
	row := func(name string, of func(processorTime) time.Duration) {
		fmt.Printf("| %s |", name)
		for _, c := range columns {
			fmt.Printf(" %s |", ms(of(c.times)/time.Duration(c.n)))
		}
		fmt.Println()
	}
	for _, name := range names {
		row(name, func(t processorTime) time.Duration { return t[name] })
	}
	row("sum", processorTime.sum)
	for _, name := range outside {
		row(name, func(t processorTime) time.Duration { return t[name] })
	}
	fmt.Println()
}
