// Package checkpoint keeps small JSON records on disk so that a crash at any line leaves either the old
// record or the new one.
//
// A record file is one header line and a JSON body:
//
//	{"v":1,"sha256":"<hex of the body's bytes>"}
//	{ ...body, indented... }
//
// The sum is over the bytes written, never over a Go struct, so a renamed field is not "corruption";
// unknown fields in the body are tolerated. Files are written to a temporary name, synced, renamed, and
// their directory is synced. Directories of records appear by rename from ".new-<name>" and disappear by
// rename to ".del-<name>"; Sweep removes what a crash left of both.
//
// It knows nothing of what the records mean.
package checkpoint
