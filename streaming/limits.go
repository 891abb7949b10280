package streaming

// Limits bounds what users may take from the server: each function admits one thing and returns what gives it back, or
// an error that says why there are too many.
type Limits struct {
	// Session admits a session of a pod, and Forward one connection of its sessions of port-forward.
	Session, Forward func(podID string) (release func(), err error)
	// Pending admits a connection that is not a session yet.
	Pending func() (release func(), err error)
}
