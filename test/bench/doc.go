// Command bench measures CRI runtimes at their sockets, as a kubelet uses them, and compares them with the floor: the
// same pod made by hand with the same plugins, the same OCI runtime and the same config.json, and nothing else.
//
//	go run ./test/bench [-handlers runc,crun] [-network masquerade,plain] [-rounds 30] [-callers 8] [-sizes 20,200]
//		[-present 0,200] [-only life,churn,...] [-peers DIR]
//
// It prints Markdown. Everything in a table was measured alternately within one run, because the speed of a shared
// machine changes: only ratios are comparable between runs. README.md explains the numbers.
package main
