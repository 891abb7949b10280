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
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
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

// TestCheckpointPullInterrupted: ^C leaves neither the directory of the checkpoint nor the files of the pull.
func TestCheckpointPullInterrupted(t *testing.T) {
	arrived, inner := make(chan struct{}, 1), registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			arrived <- struct{}{}
			<-r.Context().Done()
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	ref, root, run, temp := strings.TrimPrefix(server.URL, "http://")+"/a/b:v1", t.TempDir(), t.TempDir(), t.TempDir()
	var errs bytes.Buffer
	if execute([]string{"checkpoint", "push", madeCheckpoint(t, root), ref, "--root", root, "--run", run}, io.Discard,
		&errs) != 0 {
		t.Fatal(errs.String())
	}
	to := filepath.Join(t.TempDir(), "pulled")
	cmd := exec.Command(os.Getenv("PODD_TEST_BINARY"), "checkpoint", "pull", ref, to, "--root", root, "--run", run)
	cmd.Env, cmd.Stderr = append(os.Environ(), "TMPDIR="+temp), &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-arrived:
	case err := <-ended:
		t.Fatalf("pull without a request: %v, %s", err, errs.String())
	}
	err := cmd.Process.Signal(syscall.SIGINT)
	if werr := <-ended; err != nil || werr == nil || !strings.Contains(errs.String(), "interrupt") {
		t.Errorf("interrupted pull = %v, %v, %q, want an error that says so", err, werr, errs.String())
	}
	left, err := os.ReadDir(temp)
	if _, serr := os.Stat(to); err != nil || len(left) > 0 || serr == nil {
		t.Errorf("left %v, %v, and the directory of the checkpoint is there: %t; want nothing", left, err, serr == nil)
	}
}
