// Command halfdead ends its main thread and runs on in others, as a program does that calls pthread_exit in main. /proc
// shows it as a zombie with several threads.
package main

import (
	"runtime"
	"syscall"
	"time"
)

// The initialization of variables runs on the main thread, and keeps main on it.
var _ = func() struct{} { runtime.LockOSThread(); return struct{}{} }()

func main() {
	go func() {
		for {
			time.Sleep(time.Second)
		}
	}()
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0) // of the thread
}
