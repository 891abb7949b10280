//go:build amd64

// Command unikernel is all that runs on the kernel of a unikernel in the tests: process 1 of its initial file system.
// It sets up its network as its arguments say, ADDRESS, PREFIX and GATEWAY, and serves HTTP on port 80: / is the
// release of its kernel, /exit?code=N ends the machine with that exit code, /restart restarts it.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func main() {
	if err := run(); err != nil {
		fmt.Println("unikernel:", err)
	}
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func run() error {
	for dir, kind := range map[string]string{"/proc": "proc", "/dev": "devtmpfs"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(kind, dir, kind, 0, ""); err != nil && err != unix.EBUSY {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	if err := loadModules(); err != nil {
		return err
	}
	if err := setUpNetwork(); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	listener, err := net.Listen("tcp", ":80")
	if err != nil {
		return err
	}
	fmt.Printf("unikernel %s with %s at %s\n", release(), os.Getenv("GREETING"), os.Getenv("ADDRESS"))
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, release()) })
	http.HandleFunc("/exit", func(_ http.ResponseWriter, r *http.Request) { exit(r.FormValue("code")) })
	http.HandleFunc("/restart", func(http.ResponseWriter, *http.Request) {
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	})
	return http.Serve(listener, nil)
}

func release() string {
	var name unix.Utsname
	_ = unix.Uname(&name)
	return unix.ByteSliceToString(name.Release[:])
}

// loadModules loads those of the initial file system in the order of their names.
func loadModules() error {
	files, err := filepath.Glob("/lib/modules/*.ko")
	if err != nil {
		return err
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		_ = f.Close()
		if err != nil {
			return fmt.Errorf("load %s: %w", file, err)
		}
	}
	return nil
}

// interfaceTimeout is how long the network interface may take to appear.
const interfaceTimeout = 10 * time.Second

// setUpNetwork gives the first interface that is not the loopback one its address.
func setUpNetwork() error {
	var link netlink.Link
	for end := time.Now().Add(interfaceTimeout); link == nil; time.Sleep(10 * time.Millisecond) {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			if l.Attrs().Flags&net.FlagLoopback == 0 && len(l.Attrs().HardwareAddr) > 0 {
				link = l
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("no interface")
		}
	}
	address, err := netlink.ParseAddr(os.Getenv("ADDRESS") + "/" + os.Getenv("PREFIX"))
	if err != nil {
		return err
	}
	if err := netlink.AddrReplace(link, address); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	return netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(os.Getenv("GATEWAY"))})
}

// exit ends the machine with a code: by the file of User-Mode Linux, or the device isa-debug-exit of a PC.
func exit(code string) {
	n, err := strconv.Atoi(strings.TrimSpace(code))
	if err != nil {
		return
	}
	fmt.Println("unikernel ends with", n)
	if os.WriteFile("/proc/exitcode", fmt.Appendln(nil, n), 0) == nil { // the kernel wants the end of the line
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}
	const port = 0x501
	fmt.Println("unikernel:", writePort(port, byte(n))) // is not reached if the machine has the device
}
