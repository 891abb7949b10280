package workloads

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// program is a workload as its chart runs it.
type program struct {
	// name is also the directory of its files and the name of its image.
	name  string
	image v1.Config
	// privileged is that of the pod and the container; configure changes the container's other settings.
	privileged bool
	configure  func(*cri.ContainerConfig)
	// cannot are the reasons for which a handler cannot run it, by handler.
	cannot map[string]string
	// serve is one request of a user; byExec says that it is an exec, which needs podd.
	serve  func(*cell) error
	byExec bool
	// seesLimits checks what the program makes of its limits.
	seesLimits func(*cell)
	// data checks the data; keepsData says that they are whole even after SIGKILL.
	data      func(*cell) error
	keepsData bool
	// exitCode is that of a stop. logs checks the output after it.
	exitCode int32
	logs     func(c *cell, output string)
}

func programs() []program {
	return []program{nginx(), postgresql(), redis(), jvm(), node(), python(), systemd(), sshd(), tcpdump(), buildah(),
		bindfs(), atd()}
}

// nginx is the setting of charts that run it without root: read-only root, no capability.
func nginx() program {
	return program{
		name: "nginx",
		image: v1.Config{Cmd: []string{"nginx", "-c", "/app/nginx.conf"}, User: "www-data", StopSignal: "SIGQUIT",
			ExposedPorts: map[string]struct{}{"8080/tcp": {}}},
		configure: func(cfg *cri.ContainerConfig) {
			cfg.Linux.SecurityContext.ReadonlyRootfs = true
			cfg.Linux.SecurityContext.NoNewPrivs = true
			cfg.Linux.SecurityContext.Capabilities = &cri.Capability{DropCapabilities: []string{"ALL"}}
			cfg.Mounts = append(cfg.Mounts, &cri.Mount{HostPath: cfg.Mounts[0].HostPath, ContainerPath: "/tmp"})
		},
		serve: func(c *cell) error {
			sum, err := c.get(":8080/blob.sha256")
			if err != nil {
				return err
			}
			blob, err := c.get(":8080/blob")
			if got := fmt.Sprintf("%x  blob\n", sha256.Sum256([]byte(blob))); err == nil && got != sum {
				err = fmt.Errorf("checksum = %q, want %q", got, sum)
			}
			return err
		},
		logs: func(c *cell, output string) {
			if n := int64(strings.Count(output, `"GET /blob HTTP/1.1" 200 2097152`)); n != c.served.Load() {
				c.Errorf("%d requests in the access log, want %d", n, c.served.Load())
			}
			if !strings.Contains(output, "gracefully shutting down") {
				c.Errorf("no graceful end in the log, want one:\n%s", output)
			}
		},
	}
}

// postgresql is as the official image: root prepares the volume, initdb and the server run as another user.
func postgresql() program {
	const psql = "psql -h 127.0.0.1 -U postgres -qAt -c "
	return program{
		name: "postgresql", image: v1.Config{Cmd: []string{"/app/start"}, StopSignal: "SIGINT"}, keepsData: true,
		byExec: true,
		serve: func(c *cell) error {
			out, err := c.tryExec("pgbench -h 127.0.0.1 -U postgres -n -c 2 -t 5 postgres 2>&1")
			if err == nil && !strings.Contains(out, "actually processed: 10/10") {
				err = fmt.Errorf("pgbench: %s", out)
			}
			return err
		},
		data: func(c *cell) error {
			out, err := c.tryExec(psql + `"SELECT (SELECT count(*) FROM pgbench_history) || ' ' ||
				((SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history))"`)
			var rows int64
			var balanced bool
			if err == nil {
				_, err = fmt.Sscan(out, &rows, &balanced)
			}
			if want := 10 * c.served.Load(); err == nil && (rows < want || !balanced) {
				err = fmt.Errorf("history = %d rows, balanced = %v, want %d or more rows that are", rows, balanced, want)
			}
			return err
		},
		logs: func(c *cell, output string) {
			if !strings.HasSuffix(strings.TrimSpace(output), "database system is shut down") {
				c.Errorf("the last line is not of the shutdown, want it:\n%s", output)
			}
		},
	}
}

// redis is as the official image, with every write in the append-only file.
func redis() program {
	return program{
		name: "redis", image: command("/app/start"), keepsData: true,
		serve: func(c *cell) error {
			n, err := c.redis("INCR requests")
			if err == nil && n < c.served.Load() {
				err = fmt.Errorf("requests = %d, want %d or more", n, c.served.Load())
			}
			return err
		},
		data: func(c *cell) error {
			n, err := c.redis("INCRBY requests 0")
			if err == nil && n < c.served.Load() {
				err = fmt.Errorf("requests = %d, want %d or more", n, c.served.Load())
			}
			return err
		},
		logs: func(c *cell, output string) {
			if !strings.Contains(output, "Ready to accept connections") || !strings.Contains(output, "bye bye") {
				c.Errorf("the log does not have the start and the end, want both:\n%s", output)
			}
		},
	}
}

// redis sends a command whose answer is a number.
func (c *cell) redis(command string) (int64, error) {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(c.ip, "6379"), 10*time.Second)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		return 0, err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(strings.TrimPrefix(answer, ":")), 10, 64)
}

// counting is a program that serves its number of requests by HTTP, and keeps it: a number that is not larger than all
// before is lost data.
func counting(p program) program {
	count := func(c *cell, path string) error {
		body, err := c.get(":8080" + path)
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(body, 10, 64)
		if err == nil && n <= c.served.Load() {
			err = fmt.Errorf("requests = %d, want more than %d", n, c.served.Load())
		}
		return err
	}
	p.serve = func(c *cell) error { return count(c, "/") }
	p.data = p.serve
	logs := p.logs
	p.logs = func(c *cell, output string) {
		if n := int64(strings.Count(output, "request ")); n < c.served.Load() && c.attempt == 1 {
			c.Errorf("%d requests in the log, want %d", n, c.served.Load())
		}
		if logs != nil {
			logs(c, output)
		}
	}
	return p
}

// jvm: the size of the heap follows from the pod's memory limit.
func jvm() program {
	return counting(program{
		name: "jvm", image: command("java", "-cp", "/app", "Main"), exitCode: 143,
		seesLimits: func(c *cell) {
			var heap, processors int64
			limits, err := c.get(":8080/limits")
			if err == nil {
				_, err = fmt.Sscan(limits, &heap, &processors)
			}
			if err != nil || heap > memory/2 || heap < memory/8 || processors != 1 {
				c.Errorf("heap = %d bytes, processors = %d, error = %v, want a quarter of %d, and 1", heap, processors, err, memory)
			}
		},
		logs: savedLast,
	})
}

// savedLast checks that the last line tells of the data of an orderly end.
func savedLast(c *cell, output string) {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "saved ") {
		c.Errorf("last line = %q, want it to say what was saved", last)
	}
}

// node is a server in Node.js that is not root.
func node() program {
	return counting(program{
		name: "node", image: v1.Config{Cmd: []string{"node", "/app/server.js"}, User: "1000:1000", WorkingDir: "/app"},
		seesLimits: func(c *cell) {
			limits, err := c.get(":8080/limits")
			heap, errNumber := strconv.ParseInt(limits, 10, 64)
			if err != nil || errNumber != nil || heap > memory || heap < memory/8 {
				c.Errorf("heap = %d bytes, error = %v, want at most %d", heap, err, memory)
			}
		},
		logs: savedLast,
	})
}

// python commits each request to a database in the volume, with memory that it maps.
func python() program {
	return counting(program{
		name: "python", image: v1.Config{Cmd: []string{"python3", "/app/server.py"}, User: "1000:1000"}, keepsData: true,
		logs: func(c *cell, output string) {
			if !strings.HasSuffix(strings.TrimSpace(output), "integrity ok") {
				c.Errorf("the last line does not say that the database is whole, want it:\n%s", output)
			}
		},
	})
}
