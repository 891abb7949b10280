// Package server answers CRI v1 over gRPC: each RPC is validated, given to the engine or to the image store, and
// the answer converted. One file per RPC; a file of an RPC holds nothing else.
//
// It owns the meaning of the wire: what a request must look like (validate*.go), which gRPC code and which cri-api
// reason an error becomes (errors.go), what is logged of a request (fields.go: ids and names, never contents) and
// how records look as CRI messages (convert_*.go). It keeps no state but a cache of encodings, starts nothing and touches neither disk nor
// kernel. Only cmd/podd and tests may call it.
package server
