// Package server serves CRI v1 over gRPC: it validates each request, calls the engine or the image store, and converts
// the result. There is one file per RPC; it has nothing else in it.
//
// It owns the validation of requests (validate*.go), the gRPC code and cri-api reason of each error (errors.go), what
// is logged of a request (fields.go: ids and names, never contents), and the conversion of records to CRI messages
// (convert_*.go). It keeps no state except a cache of encodings, starts nothing and accesses neither disk nor kernel.
// Only cmd/podd and tests may call it.
package server
