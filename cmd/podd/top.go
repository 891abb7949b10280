package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/podd-project/podd/cmd/podd/admin"
)

// topItem is the resource usage of a pod with its containers, or of a container.
type topItem struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	rates
	Containers []topItem `json:"containers,omitzero"`
}

// rates are amounts per second, and the memory in use. Unknown values are nil.
type rates struct {
	// CPU is in nanoseconds per second, Memory in bytes, Read and Write in bytes per second.
	CPU    *uint64 `json:"cpu_nanocores,omitempty"`
	Memory *uint64 `json:"memory_bytes,omitempty"`
	Read   *uint64 `json:"read_bytes_per_second,omitempty"`
	Write  *uint64 `json:"write_bytes_per_second,omitempty"`
}

// topOrder is the column by which the list is sorted.
type topOrder string

// compare returns the order of two rates, the larger and then the known first.
func (o topOrder) compare(a, b rates) int {
	switch o {
	case "cpu":
		return larger(a.CPU, b.CPU)
	case "memory":
		return larger(a.Memory, b.Memory)
	case "read":
		return larger(a.Read, b.Read)
	case "write":
		return larger(a.Write, b.Write)
	}
	return 0
}

func larger(a, b *uint64) int {
	if a == nil || b == nil {
		return cmp.Compare(known(b), known(a))
	}
	return cmp.Compare(*b, *a)
}

func known(n *uint64) int {
	if n == nil {
		return 0
	}
	return 1
}

// topPods returns the rates between two measurements, sorted.
func topPods(before, now []admin.PodUsage, order topOrder) []topItem {
	last := ioByID(before)
	pods := make([]topItem, 0, len(now))
	for _, p := range now {
		pod := topItem{ID: p.ID, Name: p.Name, rates: ratesOf(p.Resources, last[p.ID]), Containers: []topItem{}}
		for _, c := range p.Containers {
			pod.Containers = append(pod.Containers, topItem{ID: c.ID, Name: c.Name, rates: ratesOf(c.Resources, last[c.ID])})
		}
		if p.IO == nil { // a pod without its own cgroup
			pod.Read, pod.Write = sumIO(pod.Containers)
		}
		order.sort(pod.Containers)
		pods = append(pods, pod)
	}
	order.sort(pods)
	return pods
}

func (o topOrder) sort(items []topItem) {
	slices.SortStableFunc(items, func(a, b topItem) int {
		return cmp.Or(o.compare(a.rates, b.rates), strings.Compare(a.Name, b.Name))
	})
}

// ioByID returns the counters of pods and containers.
func ioByID(pods []admin.PodUsage) map[string]*admin.IO {
	byID := map[string]*admin.IO{}
	for _, p := range pods {
		byID[p.ID] = p.IO
		for _, c := range p.Containers {
			byID[c.ID] = c.IO
		}
	}
	return byID
}

// ratesOf returns the rates of a pod or container, those of I/O if it was measured twice.
func ratesOf(now admin.Resources, before *admin.IO) rates {
	r := rates{CPU: now.CPU, Memory: now.Memory}
	if now.IO == nil || before == nil {
		return r
	}
	if seconds := now.IO.At.Sub(before.At).Seconds(); seconds > 0 {
		r.Read = perSecond(before.ReadBytes, now.IO.ReadBytes, seconds)
		r.Write = perSecond(before.WriteBytes, now.IO.WriteBytes, seconds)
	}
	return r
}

// perSecond returns the rate of a counter; a counter that went back has none.
func perSecond(before, now uint64, seconds float64) *uint64 {
	if now < before {
		return nil
	}
	return new(uint64(float64(now-before) / seconds))
}

// sumIO adds the known rates of containers.
func sumIO(containers []topItem) (read, write *uint64) {
	for _, c := range containers {
		read, write = add(read, c.Read), add(write, c.Write)
	}
	return read, write
}

func add(sum, n *uint64) *uint64 {
	if sum == nil || n == nil {
		return cmp.Or(sum, n)
	}
	return new(*sum + *n)
}

// topLines returns a line for each pod, and one for each container below its pod.
func topLines(pods []topItem, containers bool) (lines []topItem) {
	for _, p := range pods {
		lines = append(lines, p)
		for _, c := range p.Containers {
			if containers {
				c.Name = "  " + c.Name
				lines = append(lines, c)
			}
		}
	}
	return lines
}
