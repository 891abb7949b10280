// Package worker does the jobs of a pull's process: it transfers images, loads archives and verifies signatures. The
// data of registries and archives are parsed, decompressed and unpacked in that process only.
//
// A pull: Run, in the daemon, starts podd again (run.go). The new process restricts itself and executes itself again
// (main.go runConfined), reads the Job (runPull), and opens storage (worker.go doPull). transfer.go checks platform and
// signature policy, add_layers.go fetches and unpacks layers in further processes (unpack.go), copy stores the image.
// Progress and the Result go back as reports (report.go), which Run reads in the daemon (report_read.go).
//
// The process has containers/storage and no Store: it never imports image. The daemon calls Run and the functions that
// check stored content; the rest runs in the process, which trusts none of its input. The daemon does not trust the
// process: see reportReader.
package worker
