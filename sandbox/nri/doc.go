// Package nri serves the node's plugins by the Node Resource Interface (github.com/containerd/nri, v1alpha1 of its
// protocol): it tells them of pods and containers, and lets them adjust containers that are created or updated.
//
// It owns the socket's connections, the plugins that it launches, one queue per plugin, and what plugins know. It never
// changes a pod or container itself: an adjustment changes the config.json that the engine passes in, and updates of
// other containers go through Engine. Package sandbox and cmd call it.
//
// The protocol, its types and the merging of adjustments with their conflicts are the library's. Its dispatch is not
// used, because it holds one lock during every call of every plugin. Here each plugin has a separate queue: it gets one
// call at a time, in the order of events, each with a deadline. Events that no one waits for, such as the stop and the
// removal of a container, are only put into the queue.
package nri
