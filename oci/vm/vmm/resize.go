package vmm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ErrFixedSize is the error for a machine that cannot grow.
var ErrFixedSize = errors.New("a machine of User-Mode Linux cannot grow")

// Limits are the largest size of a machine.
type Limits struct {
	// Memory is in MiB, CPUs a number of processors.
	Memory, CPUs int
}

const (
	// memoryDevice is the id of the device by which memory is added (virtio-mem).
	memoryDevice = "more"
	// Added memory is a multiple of memoryBlock, in MiB: Linux adds whole blocks.
	memoryBlock = 128
	// growTimeout is how long the guest may take to use the memory that it was given.
	growTimeout = 8 * time.Second
	growPause   = 20 * time.Millisecond
)

// memoryReserve is how much memory the machine can get in addition to that of its start, in MiB.
func (c Config) memoryReserve() int {
	return max(c.Limits.Memory-c.Memory, 0) / memoryBlock * memoryBlock
}

// Grow gives the machine more memory and processors, up to Config.Limits; a size that it has already is not an error.
// The guest must then start to use its processors. It never takes any away.
func (m *Machine) Grow(ctx context.Context, memory, cpus int) error {
	m.growing.Lock()
	defer m.growing.Unlock()
	if m.control == nil {
		if memory > m.config.Memory {
			return fmt.Errorf("%w: it has %d MiB of memory, %d are wanted", ErrFixedSize, m.config.Memory, memory)
		}
		return nil
	}
	if memory > max(m.config.Limits.Memory, m.config.Memory) {
		return fmt.Errorf("the virtual machine can have %d MiB of memory, %d are wanted", m.config.Limits.Memory, memory)
	}
	if err := m.growMemory(ctx, memory); err != nil {
		return fmt.Errorf("add memory: %w", err)
	}
	if err := m.addProcessors(cpus); err != nil {
		return fmt.Errorf("add processors: %w", err)
	}
	return nil
}

// growMemory asks for memory and waits until the guest has taken it.
func (m *Machine) growMemory(ctx context.Context, memory int) error {
	added := (memory - m.config.Memory + memoryBlock - 1) / memoryBlock * memoryBlock
	if added = min(added, m.config.memoryReserve()); added <= m.added {
		return nil
	}
	err := m.control.run("qom-set", map[string]any{
		"path": "/machine/peripheral/" + memoryDevice, "property": "requested-size", "value": int64(added) << 20,
	}, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, growTimeout)
	defer cancel()
	for {
		var size int64
		err := m.control.run("qom-get",
			map[string]any{"path": "/machine/peripheral/" + memoryDevice, "property": "size"}, &size)
		if err != nil {
			return err
		}
		if size >= int64(added)<<20 {
			m.added = added
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the guest has taken %d MiB of %d: %w", size>>20, added, ctx.Err())
		case <-time.After(growPause):
		}
	}
}

// slot is a place for a processor, with the properties that QEMU wants to see again. Its path is empty until there is
// one.
type slot struct {
	Type  string          `json:"type"`
	Props json.RawMessage `json:"props"`
	Path  string          `json:"qom-path"`
}

// addProcessors fills places until the machine has that many processors.
func (m *Machine) addProcessors(cpus int) error {
	var slots []slot
	if err := m.control.run("query-hotpluggable-cpus", nil, &slots); err != nil {
		return err
	}
	have := 0
	for _, s := range slots {
		if s.Path != "" {
			have++
		}
	}
	for i := len(slots) - 1; i >= 0 && have < cpus; i-- { // QEMU lists the last one first
		if slots[i].Path != "" {
			continue
		}
		arguments := map[string]any{}
		if err := json.Unmarshal(slots[i].Props, &arguments); err != nil {
			return err
		}
		arguments["driver"], arguments["id"] = slots[i].Type, fmt.Sprintf("cpu%d", have)
		if err := m.control.run("device_add", arguments, nil); err != nil {
			return err
		}
		have++
	}
	if have < cpus {
		return fmt.Errorf("the virtual machine can have %d processors, %d are wanted", have, cpus)
	}
	return nil
}
