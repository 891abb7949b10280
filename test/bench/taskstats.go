package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// taskstatsVersion is the first version of struct taskstats that has ac_tgid: that of Linux 5.19.
const taskstatsVersion = 12

// exitQueue is how many bytes of reports the kernel keeps until they are read.
const exitQueue = 64 << 20

// ended is the kernel's report of a thread that has ended.
type ended struct {
	comm            string // the first 15 bytes of the program's name, or what the thread has called itself
	thread, process int    // thread equals process for the first thread of a process
	processor       time.Duration
}

// exits collects the kernel's reports of all threads of the machine that end, by generic netlink: see
// Documentation/accounting/taskstats.rst of the kernel.
type exits struct {
	fd      int
	family  uint16
	cpus    string // all processors, as a list
	closing atomic.Bool
	done    chan error
	reports []ended // until done
}

// listenExits begins to collect. It needs CAP_NET_ADMIN and the first PID and user namespaces.
func listenExits() (*exits, error) {
	family, err := netlink.GenlFamilyGet(unix.TASKSTATS_GENL_NAME)
	if err != nil {
		return nil, fmt.Errorf("taskstats (CONFIG_TASKSTATS): %w", err)
	}
	cpus, err := os.ReadFile("/sys/devices/system/cpu/possible")
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	e := &exits{fd: fd, family: family.ID, cpus: strings.TrimSpace(string(cpus)), done: make(chan error, 1)}
	second := unix.NsecToTimeval(time.Second.Nanoseconds())
	err = errors.Join(unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, exitQueue),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &second),
		e.request(unix.TASKSTATS_CMD_ATTR_REGISTER_CPUMASK))
	if err == nil {
		err = e.read() // until the request is acknowledged
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("taskstats: %w", err), unix.Close(fd))
	}
	go func() { e.done <- e.read() }()
	return e, nil
}

// close ends the collection and returns the reports.
func (e *exits) close() ([]ended, error) {
	err := e.request(unix.TASKSTATS_CMD_ATTR_DEREGISTER_CPUMASK)
	e.closing.Store(true) // the acknowledgement is in the queue then, so that the reader does not give up before it
	err = errors.Join(err, <-e.done, unix.Close(e.fd))
	if !slices.ContainsFunc(e.reports, func(r ended) bool { return r.processor > 0 }) && len(e.reports) > 0 {
		err = errors.Join(err, errors.New("taskstats: the kernel reports no processor time (CONFIG_TASK_DELAY_ACCT)"))
	}
	return e.reports, err
}

// request asks for the reports of all processors, or for no more of them.
func (e *exits) request(attribute int) error {
	r := nl.NewNetlinkRequest(int(e.family), unix.NLM_F_ACK)
	r.AddData(&nl.Genlmsg{Command: unix.TASKSTATS_CMD_GET, Version: unix.TASKSTATS_GENL_VERSION})
	r.AddData(nl.NewRtAttr(attribute, nl.ZeroTerminated(e.cpus)))
	return unix.Sendto(e.fd, r.Serialize(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// read collects reports until the kernel has acknowledged a request.
func (e *exits) read() error {
	buffer := make([]byte, os.Getpagesize())
	for {
		n, err := unix.Read(e.fd, buffer)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN) && !e.closing.Load():
			continue
		case errors.Is(err, unix.ENOBUFS):
			return fmt.Errorf("reports of exits were lost: more than %d MiB of them waited", exitQueue>>20)
		case err != nil:
			return err
		}
		acknowledged, err := e.add(buffer[:n])
		if err != nil || acknowledged {
			return err
		}
	}
}

// add adds the reports in a datagram.
func (e *exits) add(datagram []byte) (acknowledged bool, err error) {
	messages, err := syscall.ParseNetlinkMessage(datagram)
	if err != nil {
		return false, err
	}
	for _, m := range messages {
		switch m.Header.Type {
		case unix.NLMSG_ERROR:
			if len(m.Data) < 4 {
				return false, errors.New("a short acknowledgement")
			}
			if code := int32(binary.NativeEndian.Uint32(m.Data)); code != 0 {
				return false, unix.Errno(-code)
			}
			acknowledged = true
		case e.family:
			r, err := parseExit(m.Data)
			if err != nil {
				return false, err
			}
			e.reports = append(e.reports, r)
		}
	}
	return acknowledged, nil
}

// parseExit reads the report of a thread. That of its process, which follows when the last thread ends, has no times
// of its own.
func parseExit(message []byte) (ended, error) {
	if len(message) < nl.SizeofGenlmsg {
		return ended{}, errors.New("a report of an exit without a header")
	}
	thread, err := attribute(message[nl.SizeofGenlmsg:], unix.TASKSTATS_TYPE_AGGR_PID)
	if err != nil {
		return ended{}, err
	}
	stats, err := attribute(thread, unix.TASKSTATS_TYPE_STATS)
	if err != nil {
		return ended{}, err
	}
	var s unix.Taskstats
	end := unsafe.Offsetof(s.Ac_tgid) + unsafe.Sizeof(s.Ac_tgid)
	if len(stats) < int(end) || binary.NativeEndian.Uint16(stats) < taskstatsVersion {
		return ended{}, fmt.Errorf("a report of an exit of %d bytes, want version %d, of Linux 5.19", len(stats),
			taskstatsVersion)
	}
	comm := stats[unsafe.Offsetof(s.Ac_comm):]
	return ended{
		comm:    unix.ByteSliceToString(comm[:unsafe.Sizeof(s.Ac_comm)]),
		thread:  int(binary.NativeEndian.Uint32(stats[unsafe.Offsetof(s.Ac_pid):])),
		process: int(binary.NativeEndian.Uint32(stats[unsafe.Offsetof(s.Ac_tgid):])),
		// The scheduler's figure, in ns. ac_utime and ac_stime count the ticks of the clock that met the thread: four
		// milliseconds each or nothing.
		processor: time.Duration(binary.NativeEndian.Uint64(stats[unsafe.Offsetof(s.Cpu_run_virtual_total):])),
	}, nil
}

// attribute returns the value of a netlink attribute.
func attribute(list []byte, kind uint16) ([]byte, error) {
	all, err := nl.ParseRouteAttr(list)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if a.Attr.Type&^unix.NLA_F_NESTED == kind {
			return a.Value, nil
		}
	}
	return nil, fmt.Errorf("a report of an exit without attribute %d", kind)
}
