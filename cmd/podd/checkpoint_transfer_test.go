package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// keyPair writes an Ed25519 key pair to two files.
func keyPair(t *testing.T) (private, public string) {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	privDER, err := x509.MarshalPKCS8PrivateKey(priv)
	pubDER, perr := x509.MarshalPKIXPublicKey(pub)
	private, public = filepath.Join(t.TempDir(), "private.pem"), filepath.Join(t.TempDir(), "public.pem")
	err = errors.Join(err, perr,
		os.WriteFile(private, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: privDER}), 0o600),
		os.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pubDER}), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return private, public
}

// TestCheckpointTransfer: a checkpoint goes to a registry, and from there to a node that trusts its signature.
func TestCheckpointTransfer(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	ref := strings.TrimPrefix(server.URL, "http://") + "/checkpoints/pod:v1"
	private, public := keyPair(t)
	run, one, two := t.TempDir(), t.TempDir(), t.TempDir()
	podd := func(root string, args ...string) (string, error) {
		var out, errs bytes.Buffer
		args = append([]string{"checkpoint"}, append(args, "--root", root, "--run", run)...)
		if execute(args, &out, &errs) != 0 {
			return "", errors.New(errs.String())
		}
		return out.String(), nil
	}
	want := func(what, words string, err error) {
		t.Helper()
		if words == "" && err != nil || words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
			t.Errorf("%s = %v, want an error with %q", what, err, words)
		}
	}
	dir := madeCheckpoint(t, one)
	trusting := fmt.Sprintf("runtime.checkpoint_keys=[%q]", public)
	to := filepath.Join(t.TempDir(), "pulled")
	_, err := podd(two, "sign", dir, "--key", private)
	want("sign on a node that has not made it", "seal", err)
	_, err = podd(one, "push", dir, ref)
	want("push", "", err)
	_, err = podd(two, "pull", ref, to, "--set", trusting)
	want("pull of a checkpoint without a signature", "seal", err)
	if _, err := os.Stat(to); err == nil {
		t.Error("the directory of a pull that failed is there, want it removed")
	}
	_, err = podd(one, "sign", dir, "--key", private)
	want("sign", "", err)
	pushed, err := podd(one, "push", dir, ref)
	want("push of the signed checkpoint", "", err)
	_, err = podd(two, "pull", ref, to)
	want("pull without the key", "none of the 0 keys", err)
	pulled, err := podd(two, "pull", ref, to, "--set", trusting)
	want("pull", "", err)
	if pulled != pushed || !strings.HasPrefix(pushed, "sha256:") {
		t.Errorf("digest of the pull = %q, want that of the push, %q", pulled, pushed)
	}
	_, err = podd(two, "verify", to)
	want("verify without the key", "none of the 0 keys", err)
	_, err = podd(two, "verify", to, "--set", trusting)
	want("verify", "", err)
	_, err = podd(two, "pull", ref, to, "--set", trusting)
	want("pull into a directory with files", "not empty", err)
	_, err = podd(two, "push", t.TempDir(), ref)
	want("push of an empty directory", "not a complete checkpoint", err)
	_, err = podd(two, "pull", ref, filepath.Join(to, "x", "y"), "--set", trusting)
	want("pull without a parent", "no such file", err)
}
