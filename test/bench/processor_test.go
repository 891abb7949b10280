package main

import (
	"maps"
	"strings"
	"testing"
	"time"
)

func TestByComponent(t *testing.T) {
	const daemon = 10
	list := []ended{
		{comm: "podd", thread: 11, process: daemon, processor: time.Hour}, // a thread of the daemon, which runs
		{comm: "gmain", thread: 21, process: 20, processor: 1 * time.Millisecond},
		{comm: "conmon", thread: 20, process: 20, processor: 2 * time.Millisecond},
		// the process of a container: threads that ended when it became the workload, which gave the process its name
		{comm: "runc:[2:INIT]", thread: 31, process: 30, processor: 3 * time.Millisecond},
		{comm: workload, thread: 30, process: 30, processor: 4 * time.Millisecond},
		{comm: "runc:[1:CHILD]", thread: 29, process: 29, processor: 5 * time.Millisecond},
		{comm: "bridge", thread: 41, process: 40, processor: 6 * time.Millisecond}, // its process runs on
		{comm: "ip6tables", thread: 50, process: 50, processor: 7 * time.Millisecond},
		{comm: "iptables", thread: 51, process: 51, processor: 8 * time.Millisecond},
		{comm: "podd", thread: 60, process: 60, processor: 9 * time.Millisecond},
		{comm: "cron", thread: 70, process: 70, processor: 10 * time.Millisecond},
	}
	got := byComponent(list, daemon)
	want := processorTime{"conmon": 3 * time.Millisecond, initRow: 12 * time.Millisecond, "bridge": 6 * time.Millisecond,
		"iptables": 15 * time.Millisecond, "podd's own children": 9 * time.Millisecond, otherRow: 10 * time.Millisecond}
	if !maps.Equal(got, want) {
		t.Errorf("byComponent = %v, want %v", got, want)
	}
	got[machineRow], got[callerRow] = time.Hour, time.Hour
	if sum := got.sum(); sum != 45*time.Millisecond {
		t.Errorf("sum = %v, want 45ms: without other programs, this one and the machine", sum)
	}
}

func TestBusy(t *testing.T) {
	line := strings.Fields("cpu  100 20 30 40000 5000 6 7 80000 0 0")
	if got, want := busy(line), 1630*time.Millisecond; got != want {
		t.Errorf("busy = %v, want %v: user, nice, system, irq, softirq", got, want)
	}
	if busy(nil) != 0 || machineTime() == 0 {
		t.Errorf("busy of nothing = %v, of the machine = %v, want 0 and more than 0", busy(nil), machineTime())
	}
}
