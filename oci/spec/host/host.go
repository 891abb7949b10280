// Package host reads from this machine what a config.json depends on: what the kernel supports, which uid a user name
// maps to in a root filesystem, whether a mount's source exists, which device a path is.
//
// Root filesystems are hostile: files in them are opened with openat2 below that root, and up to a maximal size. The
// package has no state except the lookups that hang (Resolver) and the CDI cache. The sandbox engine calls it to fill
// spec.Input.
package host
