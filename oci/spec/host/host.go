// Package host answers the questions that making a config.json asks of this machine: what the kernel can
// do, who a user name is inside a root filesystem, whether a mount's source exists, which device a path is.
//
// Everything it reads from a root filesystem is hostile and is opened beneath that root (openat2), size-capped.
// It keeps no state but the count of lookups that hang (Resolver) and the CDI cache. The sandbox engine calls it
// to fill spec.Input.
package host
