package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
		{Name: "hung.txt"}, {Name: "hung too.txt"},
		{Name: "last.txt", Collect: fixed("last", nil)},
	}
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		for i := range items[5:7] {
			items[5+i].Collect = func(context.Context) ([]byte, error) {
				<-t.Context().Done() // ignores its own
				return nil, nil
			}
		}
		start := time.Now()
		if err := Write(t.Context(), &out, "dir", &s, items); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != collectTimeout {
			t.Errorf("Write() with two items that hang took %v, want %v", took, collectTimeout)
		}
	})
	files := unpack(t, out.Bytes())
	for name, want := range map[string]string{
		"dir/good.txt": "a [removed] here", "dir/bad.txt.error": "no such [removed]\n",
		"dir/long.log": long[len("the end"):], "dir/long.bin.error": "has 4194311 bytes, more than 4194304\n",
		"dir/heap": "planted-word", "dir/hung.txt.error": "not collected within 30s\n",
		"dir/hung too.txt.error": "not collected within 30s\n", "dir/last.txt": "last",
	} {
		if got := files[name]; got != want {
			t.Errorf("%s = %.80q, want %.80q", name, got, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Write(ended, io.Discard, "dir", &s, items[:1]); !errors.Is(err, context.Canceled) {
		t.Errorf("Write() for a caller that is gone = %v, want %v", err, context.Canceled)
	}
}

// TestWriteIsBounded: items that cannot be compressed do not make a bundle too large, and leave room for small ones.
func TestWriteIsBounded(t *testing.T) {
	noise := make([]byte, maxItem)
	_, _ = rand.Read(noise) // never fails
	var items []Item
	for i := range 20 {
		items = append(items, Item{Name: strconv.Itoa(i), Collect: fixed(string(noise), nil), Binary: true})
	}
	items = append(items, Item{Name: "small", Collect: fixed("here", nil)})
	var s Scrubber
	var out bytes.Buffer
	if err := Write(t.Context(), &out, "dir", &s, items); err != nil {
		t.Fatal(err)
	}
	if out.Len() > maxBundle {
		t.Errorf("the bundle has %d bytes, want %d at most", out.Len(), maxBundle)
	}
	files := unpack(t, out.Bytes())
	if files["dir/1"] != string(noise) || files["dir/2.error"] == "" || files["dir/small"] != "here" {
		t.Errorf("the bundle has 1 with %d bytes, 2.error = %q, small = %q, want all of 1, no 2, and small",
			len(files["dir/1"]), files["dir/2.error"], files["dir/small"])
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
