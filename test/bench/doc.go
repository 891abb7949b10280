// Command bench measures CRI runtimes from where a kubelet sits, at their socket, beside the floor: the same pod made
// by hand with the same plugins, the same OCI runtime and the same config.json, and nothing else.
//
//	go run ./test/bench [-handlers runc,crun] [-rounds 30] [-callers 8] [-sizes 20,200]
//		[-only life,churn,...] [-peers DIR]
//
// It prints Markdown. Everything in a table was measured in turns within one run, because a shared machine drifts: the
// ratios hold, the milliseconds are that day's. README.md says what each number means.
package main
