// Package streaming is the HTTP server that the kubelet proxies kubectl exec, attach and port-forward to. It owns the
// listener, the one-time URLs, the wire protocols (SPDY/3.1 and WebSocket), and the lifetime and limits of every
// session.
//
// It knows nothing of containers: the Backend runs the sessions. It never writes to disk and never logs a token or a
// command line. Package server requests URLs (Exec, Attach, PortForward); cmd/podd creates, serves and closes the
// Server. Nothing else calls it.
package streaming
