package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// unpack returns the files of a bundle by name.
func unpack(t *testing.T, raw []byte) map[string]string {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	files, in := map[string]string{}, tar.NewReader(plain)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode != 0o600 {
			t.Errorf("%s has mode %o, want 600", h.Name, h.Mode)
		}
		files[h.Name] = string(content)
	}
}

func fixed(content string, err error) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return []byte(content), err }
}

// TestWrite: one item that fails, hangs or is too long does not keep the others from the bundle.
func TestWrite(t *testing.T) {
	var s Scrubber
	s.Know("planted-word")
	long := strings.Repeat("x", maxItem) + "the end"
	items := []Item{
		{Name: "good.txt", Collect: fixed("a planted-word here", nil)},
		{Name: "bad.txt", Collect: fixed("", errors.New("no such planted-word"))},
		{Name: "long.log", Collect: fixed(long, nil)},
		{Name: "long.bin", Collect: fixed(long, nil), Binary: true},
		{Name: "heap", Collect: fixed("planted-word", nil), Binary: true},
		{Name: "hung.txt", Collect: func(context.Context) ([]byte, error) { select {} }},
	}
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		items[5].Collect = func(ctx context.Context) ([]byte, error) {
			<-t.Context().Done() // ignores ctx
			return nil, nil
		}
		if err := Write(t.Context(), &out, "dir", &s, items); err != nil {
			t.Fatal(err)
		}
	})
	files := unpack(t, out.Bytes())
	for name, want := range map[string]string{
		"dir/good.txt": "a [removed] here", "dir/bad.txt.error": "no such [removed]\n",
		"dir/long.log": long[len("the end"):], "dir/long.bin.error": "has 4194311 bytes, more than 4194304\n",
		"dir/heap": "planted-word", "dir/hung.txt.error": "not collected within 30s\n",
	} {
		if got := files[name]; got != want {
			t.Errorf("%s = %.80q, want %.80q", name, got, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Write(ended, io.Discard, "dir", &s, items); !errors.Is(err, context.Canceled) {
		t.Errorf("Write() for a caller that is gone = %v, want %v", err, context.Canceled)
	}
}

func TestScrub(t *testing.T) {
	auth := filepath.Join(t.TempDir(), "auth.json")
	encoded := base64.StdEncoding.EncodeToString([]byte("joe:planted-one"))
	if err := os.WriteFile(auth, []byte(`{"auths":{"r.test":{"auth":"`+encoded+`","identitytoken":"planted-two"}}}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	var s Scrubber
	s.KnowAuthFile(auth)
	s.KnowAuthFile("/nonexistent")
	s.KnowEnv("A=planted three", "B=short", "C")
	for text, want := range map[string]string{
		"x " + encoded + " y":                                          "x [removed] y",
		"planted-one planted-two":                                      "[removed] [removed]",
		"planted three, planted+three":                                 "[removed], [removed]",
		"short words stay":                                             "short words stay",
		"https://joe:pass@r.test/v2":                                   "https://[removed]r.test/v2",
		"https://r.test:5000/v2 is no credential":                      "https://r.test:5000/v2 is no credential",
		"Authorization: Bearer abcdefgh12345":                          "Authorization: Bearer [removed]",
		`{"Password":"hunter2","user":"joe"}`:                          `{"Password":"[removed]","user":"joe"}`,
		"AWS_SECRET_KEY=x MY_TOKEN=abc ok":                             "AWS_SECRET_KEY=[removed] MY_TOKEN=[removed] ok",
		"jwt eyJhbGciOiJ.eyJzdWIiOiIx.c2lnbmF0dXJl":                    "jwt [removed]",
		"-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----": "[removed]",
		`level=info msg="pulled image" image=a:v1`:                     `level=info msg="pulled image" image=a:v1`,
	} {
		if got := string(s.Scrub([]byte(text))); got != want {
			t.Errorf("Scrub(%q) = %q, want %q", text, got, want)
		}
	}
}
