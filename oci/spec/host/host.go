// Package host reads the facts of this machine that a config.json depends on: the features of the kernel, which uid a
// user name maps to in a root filesystem, whether a mount's source exists, which device a path is.
//
// Root filesystems are hostile: files in them are opened with openat2 below that root, and up to a maximal size. The
// package has no state except the lookups that hang (Resolver) and the CDI cache. The sandbox engine calls it to fill
// spec.Input.
package host
