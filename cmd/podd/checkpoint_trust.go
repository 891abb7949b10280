package main

import (
	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/snapshot"
)

// openCheckpoint opens a checkpoint of this node, or one with a trusted signature.
func openCheckpoint(opts *settings.Flags, dir string) (*snapshot.Snapshot, error) {
	trust, _, err := checkpointTrust(opts)
	if err != nil {
		return nil, err
	}
	trust.Foreign = false
	return snapshot.Open(dir, trust)
}

// checkpointTrust returns the configuration, and whose checkpoints it restores.
func checkpointTrust(opts *settings.Flags) (snapshot.Trust, *settings.Loaded, error) {
	l, err := opts.Load()
	if err != nil {
		return snapshot.Trust{}, nil, err
	}
	return snapshot.Trust{
		Key:        &snapshot.Key{Path: record.Layout{Root: l.Root}.SnapshotKey()},
		PublicKeys: l.Runtime.CheckpointKeys, Foreign: l.Runtime.RestoreForeign,
	}, l, nil
}
