// Package checkpoint is podd's record store: it has nothing to do with CRIU and checkpoints of containers. It keeps
// small JSON records on disk such that a crash at any point leaves either the old record or the new one.
//
// A record file is one header line and a JSON body:
//
//	{"v":1,"sha256":"<hex of the body's bytes>"}
//	{ ...body, indented... }
//
// The checksum is over the bytes written, not over a Go struct, so a renamed field does not invalidate a record;
// unknown fields in the body are ignored. Files are written to a temporary name, synced and renamed, and their
// directory is synced; WriteUnsynced leaves out both syncs. A directory of records appears by rename from ".new-<name>"
// and disappears by rename to ".del-<name>"; Sweep removes the leftovers of a crash. WriteFile and WriteFileSync do the
// same for any file.
//
// The package does not interpret the records.
package checkpoint
