// Package sandbox runs pods: it is the engine that turns CRI verbs into calls to the mechanisms (namespaces, network,
// images, OCI runtimes) and the only writer of pod and container records.
//
// A pod is one record in one directory, written before anything else of it exists; every name on the machine follows
// from its id. Pods and containers have two functions each: build is a straight list of steps that undoes nothing, and
// teardown is idempotent, needs only the record, and is the only undo. A failed creation, Stop, Remove and recovery all
// call it.
//
// Readers (Pods, Containers, Status) return published values and wait neither for the disk nor for a mechanism. Order
// of locks: a container's or pod's slot, then its mu, then that of a table in the store.
//
// The CRI server calls it; it knows nothing of gRPC.
package sandbox
