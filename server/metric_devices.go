package server

import (
	"strconv"
	"strings"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/sandbox/usage"
)

// ioMetrics has values for each device that the container used and for the device of its root filesystem. The metrics
// that are always 0 exist in cAdvisor too: since Linux 5.0 they are only counted for whole devices.
func ioMetrics() []metric {
	device := []string{"device"}
	of := func(pick func(d cgroups.IO) uint64) func(*measured, add) {
		return func(m *measured, add add) {
			for _, d := range ioDevices(m) {
				add(pick(d), deviceLabel(d.Name))
			}
		}
	}
	zero := of(func(cgroups.IO) uint64 { return 0 })
	const uncounted = " 0: Linux does not count it for containers."
	return []metric{
		{"container_fs_reads_bytes_total", counter, device,
			of(func(d cgroups.IO) uint64 { return d.ReadBytes }),
			"Cumulative count of bytes read."},
		{"container_fs_reads_total", counter, device, of(func(d cgroups.IO) uint64 { return d.Reads }),
			"Cumulative count of reads completed."},
		{"container_fs_sector_reads_total", counter, device,
			of(func(d cgroups.IO) uint64 { return d.ReadBytes / sector }),
			"Cumulative count of sectors read, of 512 bytes."},
		{"container_fs_writes_bytes_total", counter, device,
			of(func(d cgroups.IO) uint64 { return d.WriteBytes }),
			"Cumulative count of bytes written."},
		{"container_fs_writes_total", counter, device, of(func(d cgroups.IO) uint64 { return d.Writes }),
			"Cumulative count of writes completed."},
		{"container_fs_sector_writes_total", counter, device,
			of(func(d cgroups.IO) uint64 { return d.WriteBytes / sector }),
			"Cumulative count of sectors written, of 512 bytes."},
		{"container_blkio_device_usage_total", counter, []string{"device", "major", "minor", "operation"},
			blkio,
			"Cumulative count of bytes moved from and to a block device."},
		{"container_fs_reads_merged_total", counter, device, zero,
			"Cumulative count of reads merged." + uncounted},
		{"container_fs_read_seconds_total", counter, device, zero,
			"Cumulative count of seconds spent reading." + uncounted},
		{"container_fs_writes_merged_total", counter, device, zero,
			"Cumulative count of writes merged." + uncounted},
		{"container_fs_write_seconds_total", counter, device, zero,
			"Cumulative count of seconds spent writing." + uncounted},
		{"container_fs_io_current", gauge, device, zero, "Number of I/Os currently in progress." + uncounted},
		{"container_fs_io_time_seconds_total", counter, device, zero,
			"Cumulative count of seconds spent doing I/Os." + uncounted},
		{"container_fs_io_time_weighted_seconds_total", counter, device, zero,
			"Cumulative weighted I/O time in seconds." + uncounted},
	}
}

// sector is the kernel's unit of disk space, in bytes, for all disks.
const sector = 512

// ioDevices adds the device of root filesystems if nothing was read or written there yet: critest and cAdvisor's users
// expect all metrics from the start. On btrfs, zfs and tmpfs it has no name, as in diskMetrics.
func ioDevices(m *measured) []cgroups.IO {
	for _, d := range m.Details.IO {
		if deviceLabel(d.Name) == m.disk.device {
			return m.Details.IO
		}
	}
	root := cgroups.IO{Name: strings.TrimPrefix(m.disk.device, "/dev/"), Major: m.disk.major, Minor: m.disk.minor}
	return append([]cgroups.IO{root}, m.Details.IO...)
}

func blkio(m *measured, add add) {
	for _, d := range ioDevices(m) {
		major, minor := strconv.FormatUint(d.Major, 10), strconv.FormatUint(d.Minor, 10)
		add(d.ReadBytes, deviceLabel(d.Name), major, minor, "Read")
		add(d.WriteBytes, deviceLabel(d.Name), major, minor, "Write")
	}
}

func diskMetrics() []metric {
	device := []string{"device"}
	of := func(pick func(d diskSize) uint64) func(*measured, add) {
		return func(m *measured, add add) { add(pick(m.disk), m.disk.device) }
	}
	used := func(m *measured, add add) {
		if m.Writable != nil {
			add(m.Writable.Bytes, m.disk.device)
		}
	}
	return []metric{
		{"container_fs_usage_bytes", gauge, device, used,
			"Number of bytes that the container's writable layer takes on this filesystem."},
		{"container_fs_limit_bytes", gauge, device, of(func(d diskSize) uint64 { return d.bytes }),
			"Number of bytes that can be consumed by the container on this filesystem."},
		{"container_fs_inodes_total", gauge, device, of(func(d diskSize) uint64 { return d.inodes }),
			"Number of inodes of this filesystem."},
		{"container_fs_inodes_free", gauge, device, of(func(d diskSize) uint64 { return d.inodesFree }),
			"Number of free inodes of this filesystem."},
	}
}

func networkMetrics() []metric {
	of := func(pick func(i usage.Interface) uint64) func(*measured, add) {
		return func(m *measured, add add) {
			if m.network.Default != nil {
				add(pick(*m.network.Default), m.network.Default.Name)
			}
			for _, i := range m.network.Others {
				add(pick(i), i.Name)
			}
		}
	}
	name := []string{"interface"}
	return []metric{
		{"container_network_receive_bytes_total", counter, name,
			of(func(i usage.Interface) uint64 { return i.RxBytes }),
			"Cumulative count of bytes received."},
		{"container_network_receive_packets_total", counter, name,
			of(func(i usage.Interface) uint64 { return i.RxPackets }),
			"Cumulative count of packets received."},
		{"container_network_receive_packets_dropped_total", counter, name,
			of(func(i usage.Interface) uint64 { return i.RxDropped }),
			"Cumulative count of packets dropped while receiving."},
		{"container_network_receive_errors_total", counter, name,
			of(func(i usage.Interface) uint64 { return i.RxErrors }),
			"Cumulative count of errors encountered while receiving."},
		{"container_network_transmit_bytes_total", counter, name,
			of(func(i usage.Interface) uint64 { return i.TxBytes }),
			"Cumulative count of bytes transmitted."},
		{"container_network_transmit_packets_total", counter, name,
			of(func(i usage.Interface) uint64 { return i.TxPackets }),
			"Cumulative count of packets transmitted."},
		{"container_network_transmit_packets_dropped_total", counter, name,
			of(func(i usage.Interface) uint64 { return i.TxDropped }),
			"Cumulative count of packets dropped while transmitting."},
		{"container_network_transmit_errors_total", counter, name,
			of(func(i usage.Interface) uint64 { return i.TxErrors }),
			"Cumulative count of errors encountered while transmitting."},
	}
}
