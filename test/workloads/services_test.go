package workloads

import (
	"fmt"
	"net"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// systemd is process 1, with units of its own.
func systemd() program {
	return program{
		name: "systemd", image: v1.Config{Cmd: []string{"/sbin/init"}, StopSignal: "SIGRTMIN+3"}, privileged: true,
		// Without a terminal systemd logs nothing outside of its journal.
		configure: func(cfg *cri.ContainerConfig) { cfg.Tty = true },
		exitCode:  128 + int32(unix.SIGINT), // the kernel's, for reboot(RB_HALT_SYSTEM) in a PID namespace
		cannot:    map[string]string{"gvisor-shim": "gVisor has not the cgroups and mounts that systemd needs"},
		serve: func(c *cell) error {
			body, err := c.get("/")
			if err == nil && !strings.Contains(body, "nginx") {
				err = fmt.Errorf("page = %q, want that of nginx", body)
			}
			return err
		},
		data: func(c *cell) error {
			out, err := c.tryExec("systemctl is-active nginx dbus && systemctl is-system-running --wait && " +
				"systemctl show -P MainPID nginx && journalctl -q --verify")
			if err != nil {
				failed, _ := c.tryExec("systemctl --no-pager --failed")
				err = fmt.Errorf("%w\n%s%s", err, out, failed)
			}
			return err
		},
		logs: func(c *cell, output string) {
			for _, want := range []string{"Welcome to", "Reached target", "Stopped target"} {
				if !strings.Contains(output, want) {
					c.Errorf("the log does not have %q, want it:\n%s", want, output)
				}
			}
		},
	}
}

// sshd has sessions of another user.
func sshd() program {
	return program{
		name: "sshd", image: command("/app/start"), byExec: true,
		serve: func(c *cell) error {
			out, err := c.tryExec("/app/ssh " + c.ip + " 'id -un && echo line >>/data/lines'")
			if err == nil && out != "user\n" {
				err = fmt.Errorf("output = %q, want user", out)
			}
			return err
		},
		data: func(c *cell) error {
			// A copy by the network, of which both ends are the container's.
			out, err := c.tryExec("head -c 2097152 /dev/urandom >/tmp/blob && " +
				"/app/ssh " + c.ip + " 'cat >/data/blob' </tmp/blob && cmp /tmp/blob /data/blob && " +
				"stat -c '%U' /data/blob /data/lines && wc -l </data/lines")
			var owner, other string
			var lines int64
			if err == nil {
				_, err = fmt.Sscan(out, &owner, &other, &lines)
			}
			if err == nil && (owner != "user" || other != "user" || lines < c.served.Load()) {
				err = fmt.Errorf("owners = %s and %s, lines = %d, want user, and %d or more", owner, other, lines, c.served.Load())
			}
			return err
		},
		logs: func(c *cell, output string) {
			if n := int64(strings.Count(output, "Accepted publickey for user")); c.attempt == 1 && n < c.served.Load() {
				c.Errorf("%d sessions in the log, want %d or more", n, c.served.Load())
			}
		},
	}
}

// tcpdump has the capabilities for raw sockets and to become another user, and no others.
func tcpdump() program {
	return program{
		name: "tcpdump", image: command("tcpdump", "-n", "-l", "--immediate-mode", "-i", "eth0", "udp port 9"),
		configure: func(cfg *cri.ContainerConfig) {
			cfg.Linux.SecurityContext.Capabilities = &cri.Capability{DropCapabilities: []string{"ALL"},
				AddCapabilities: []string{"NET_RAW", "SETUID", "SETGID"}}
		},
		// A packet of another length for each request; it is sent again, because the first may come before tcpdump listens.
		serve: func(c *cell) error {
			conn, err := net.Dial("udp", net.JoinHostPort(c.ip, "9"))
			if err != nil {
				return err
			}
			defer conn.Close()
			length := c.served.Load()%1000 + 1
			for range 20 {
				_, _ = conn.Write(make([]byte, length)) // the pod answers that nobody listens
				for range 20 {
					if strings.Contains(c.output(), fmt.Sprintf("UDP, length %d\n", length)) {
						return nil
					}
					time.Sleep(20 * time.Millisecond)
				}
			}
			return fmt.Errorf("packet of %d bytes: not in the log", length)
		},
		logs: func(c *cell, output string) {
			if !strings.Contains(output, "packets captured") || !strings.Contains(output, "\n0 packets dropped by kernel") {
				c.Errorf("no summary in the log, or lost packets, want none lost:\n%s", output)
			}
		},
	}
}

// buildah builds images in a privileged container, as an agent of a CI system.
func buildah() program {
	return program{
		name: "buildah", image: command("/app/build"), privileged: true,
		configure: func(cfg *cri.ContainerConfig) {
			cfg.Mounts = append(cfg.Mounts,
				&cri.Mount{HostPath: cfg.Mounts[0].HostPath, ContainerPath: "/var/lib/containers"})
		},
		cannot: map[string]string{"gvisor-shim": "gVisor has not the mounts and namespaces that crun needs in it"},
		serve: func(c *cell) error {
			want := fmt.Sprintf("request %d\n", c.served.Load()+1)
			for range 3000 {
				if out := c.output(); strings.Contains(out, want) {
					return nil
				} else if strings.Contains(out, "failed") {
					return fmt.Errorf("a build failed: %s", out)
				}
				time.Sleep(100 * time.Millisecond)
			}
			return fmt.Errorf("no %q after five minutes", want)
		},
	}
}

// bindfs is a filesystem in user space.
func bindfs() program {
	return program{
		name: "fuse", image: command("bindfs", "-f", "/data", "/mnt"), privileged: true, byExec: true,
		cannot: map[string]string{"gvisor-shim": "gVisor has no device for FUSE"},
		serve: func(c *cell) error {
			out, err := c.tryExec("grep -q ' /mnt fuse' /proc/mounts && echo line >>/mnt/lines && wc -l </data/lines")
			var lines int64
			if err == nil {
				_, err = fmt.Sscan(out, &lines)
			}
			if err == nil && lines <= c.served.Load() {
				err = fmt.Errorf("%d lines, want more than %d", lines, c.served.Load())
			}
			return err
		},
		data: func(c *cell) error {
			_, err := c.tryExec("head -c 10485760 /dev/urandom >/mnt/blob && cmp /mnt/blob /data/blob && " +
				"cp /data/blob /data/copy && cmp /mnt/copy /mnt/blob && rm /mnt/blob /mnt/copy && ! [ -e /data/copy ]")
			return err
		},
	}
}

// atd is a classic daemon: it logs to syslog and becomes other users, and its client is set-user-ID.
func atd() program {
	return program{
		name: "atd", image: command("/app/start"), byExec: true,
		serve: func(c *cell) error {
			_, err := c.tryExec("n=$(wc -l </data/jobs || echo 0); " +
				"echo 'id -un >>/data/jobs' | su user -c 'at now' || exit 1; i=0; " +
				"until [ $(wc -l </data/jobs || echo 0) -gt $n ]; do i=$((i+1)); [ $i -lt 300 ] || exit 3; sleep 0.1; done")
			return err
		},
		data: func(c *cell) error {
			out, err := c.tryExec("stat -c %U /data/jobs; sort -u /data/jobs; wc -l </data/jobs")
			var owner, runner string
			var lines int64
			if err == nil {
				_, err = fmt.Sscan(out, &owner, &runner, &lines)
			}
			if err == nil && (owner != "user" || runner != "user" || lines < c.served.Load()) {
				err = fmt.Errorf("owner = %s, jobs of %s, %d of them, want user, and %d or more", owner, runner, lines,
					c.served.Load())
			}
			return err
		},
		logs: func(c *cell, output string) {
			n := int64(strings.Count(output, "pam_unix(atd:session): session opened for user user"))
			if c.attempt == 1 && n < c.served.Load() {
				c.Errorf("%d jobs in the log, want %d or more:\n%s", n, c.served.Load(), output)
			}
		},
	}
}
