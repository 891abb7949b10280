// Command halfdead ends its main thread and runs on in others, as a program does that calls pthread_exit in main. /proc
// shows it as a zombie with several threads.
package main

import (
	"runtime"
	"syscall"
	"time"
)

// mainThread is the id of the main thread, on which the initialization of variables runs, and keeps main.
var mainThread = lockThread()

func lockThread() int {
	runtime.LockOSThread()
	return syscall.Gettid()
}

func main() {
	go func() {
		for {
			time.Sleep(time.Second)
		}
	}()
	if syscall.Gettid() == mainThread {
		_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0) // of the thread
	}
}
