// Package worker does the jobs of a pull's process: it transfers images, loads archives and verifies signatures. What a
// registry or an archive sends is parsed, decompressed and unpacked in that process only.
//
// The process has containers/storage and no Store: it never imports image. Of this package the daemon calls Run, which
// starts the process, and the functions that check stored content; all else runs in the process, which trusts nothing
// that it reads. The daemon does not trust the process: see reportReader.
package worker
