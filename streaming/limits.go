package streaming

const (
	// MaxPending is for how many connections that are not a session Limits.Pending should have room.
	MaxPending = 256
	// maxTokens bounds the URLs that are neither used nor expired.
	maxTokens = 1000
)

// Limits bounds what users may take from the server: each function admits one thing and returns what gives it back, or
// an error that says why there are too many.
type Limits struct {
	// Session admits a session of a pod, and Forward one connection of its sessions of port-forward.
	Session, Forward func(podID string) (release func(), err error)
	// Pending admits a connection that is not a session yet.
	Pending func() (release func(), err error)
}
