// Command filetest tries, in the working directory, what programs expect of a file system of Linux, and what two
// containers with one volume expect of each other. It prints what fails, and its exit status is 1 then.
//
//	filetest alone                # what one process needs
//	filetest serve | filetest use # sockets, locks and watches, between two containers
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	modes := map[string]func() error{"alone": alone, "serve": serve, "use": use}
	f := modes[os.Args[len(os.Args)-1]]
	if f == nil {
		fmt.Fprintln(os.Stderr, "filetest: want alone, serve or use")
		os.Exit(2)
	}
	if err := f(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

// attempt names the error of what is tried.
func attempt(name string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return err
}

func alone() error {
	return errors.Join(
		attempt("extended attribute", attribute("user.test")),
		attempt("file capability", capability()),
		attempt("O_DIRECT", direct()),
		attempt("time in nanoseconds", nanoseconds()),
		attempt("hard link, rename, mmap", others()),
		attempt("fallocate", allocate()),
	)
}

func attribute(name string) error {
	if err := os.WriteFile("attribute", nil, 0o600); err != nil {
		return err
	}
	if err := unix.Setxattr("attribute", name, []byte("value"), 0); err != nil {
		return err
	}
	got := make([]byte, 10)
	n, err := unix.Getxattr("attribute", name, got)
	if err == nil && string(got[:n]) != "value" {
		err = fmt.Errorf("value = %q", got[:n])
	}
	return err
}

// capability sets CAP_NET_BIND_SERVICE on a file, as the revision 2 of the attribute.
func capability() error {
	if err := os.WriteFile("capability", nil, 0o700); err != nil {
		return err
	}
	data := make([]byte, 20)
	data[3], data[0], data[5] = 2, 1, 1<<(unix.CAP_NET_BIND_SERVICE-8)
	return unix.Setxattr("capability", "security.capability", data, 0)
}

func direct() error {
	fd, err := unix.Open("direct", unix.O_CREAT|unix.O_RDWR|unix.O_DIRECT, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	page[0] = 'x'
	if _, err := unix.Pwrite(fd, page, 0); err != nil {
		return err
	}
	page[0] = 0
	if _, err := unix.Pread(fd, page, 0); err != nil || page[0] != 'x' {
		return fmt.Errorf("read %q, %w", page[0], err)
	}
	return nil
}

func nanoseconds() error {
	if err := os.WriteFile("time", nil, 0o600); err != nil {
		return err
	}
	want := time.Unix(1e9, 123456789)
	if err := os.Chtimes("time", want, want); err != nil {
		return err
	}
	info, err := os.Stat("time")
	if err == nil && !info.ModTime().Equal(want) {
		err = fmt.Errorf("%s, want %s", info.ModTime(), want)
	}
	return err
}

func others() error {
	if err := os.WriteFile("first", []byte("text"), 0o600); err != nil {
		return err
	}
	if err := errors.Join(os.Link("first", "second"), os.Rename("second", "third")); err != nil {
		return err
	}
	f, err := os.OpenFile("third", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	copy(m, "TEXT")
	if err := unix.Msync(m, unix.MS_SYNC); err != nil {
		return err
	}
	got, err := os.ReadFile("first")
	if err == nil && string(got) != "TEXT" {
		err = fmt.Errorf("content = %q", got)
	}
	return err
}

func allocate() error {
	f, err := os.Create("allocated")
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Fallocate(int(f.Fd()), 0, 0, 1<<20)
}

const (
	socketName, lockName, watchedName = "socket", "lock", "watched"
	patience                          = 20 * time.Second
)

// serve answers one connection, holds a lock until then, and writes the file that use watches.
func serve() error {
	lock, err := os.Create(lockName)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	if err := os.WriteFile(watchedName, nil, 0o600); err != nil {
		return err
	}
	_ = os.Remove(socketName)
	l, err := net.Listen("unix", socketName)
	if err != nil {
		return err
	}
	c, err := l.Accept()
	if err != nil {
		return err
	}
	if err := os.WriteFile(watchedName, []byte("new"), 0o600); err != nil {
		return err
	}
	_, err = io.WriteString(c, "hello")
	return errors.Join(err, c.Close(), l.Close())
}

// use is the other side of serve.
func use() error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(socketName); err == nil {
			break
		}
	}
	watch, err := unix.InotifyInit1(0)
	if err != nil {
		return err
	}
	if _, err := unix.InotifyAddWatch(watch, watchedName, unix.IN_MODIFY); err != nil {
		return err
	}
	lock, err := os.Open(lockName)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("flock of a locked file = %w, want EWOULDBLOCK", err)
	}
	c, err := net.Dial("unix", socketName)
	if err != nil {
		return err
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
		return fmt.Errorf("from the socket %q, %w", got, err)
	}
	return attempt("inotify", poll(watch))
}

// poll waits for an event.
func poll(watch int) error {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(watch), Events: unix.POLLIN}}, int(patience.Milliseconds()))
	if err == nil && n == 0 {
		err = errors.New("no event")
	}
	return err
}
