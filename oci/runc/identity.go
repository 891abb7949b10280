package runc

// Failure makes the error of a runtime that failed at act with this complaint: an ErrCommand when it is about the
// container's command, an errdefs kind where callers act upon it.
func Failure(act, text string) error { return failure(act, complaint([]byte(text))) }
