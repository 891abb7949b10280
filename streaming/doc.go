// Package streaming is the HTTP server that the kubelet proxies kubectl exec, attach and port-forward to. It owns
// the listener, the one-time URLs, the wire protocols (SPDY/3.1 and WebSocket) and every session's life and limits.
//
// It knows nothing of containers: what a session does is the Backend's, which it is given. It never writes to disk
// and never logs a token or a command line. package server asks for URLs (Exec, Attach, PortForward); cmd/podd makes,
// serves and closes the Server; nobody else calls in.
package streaming
