package worker

import (
	"archive/tar"
	"bytes"
	"io"
	"strconv"
	"strings"
	"testing"
)

// TestMeterCountsFiles: the files of all layers count together, also empty ones.
func TestMeterCountsFiles(t *testing.T) {
	tarOf := func(files int) *bytes.Buffer {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for i := range files {
			if err := w.WriteHeader(&tar.Header{Name: strconv.Itoa(i), Typeflag: tar.TypeReg}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return &out
	}
	m := &unpackMeter{unpacked: &unpacked{}, mostBytes: 1 << 20, mostFiles: 150}
	if err := m.copy(io.Discard, tarOf(100)); err != nil {
		t.Errorf("copy of 100 files = %v, want nil", err)
	}
	if err := m.copy(io.Discard, tarOf(50)); err != nil {
		t.Errorf("copy of 50 more files = %v, want nil", err)
	}
	if err := m.copy(io.Discard, tarOf(1)); err == nil || !strings.Contains(err.Error(), "more than 150 files") {
		t.Errorf("copy of file 151 = %v, want an error with the limit", err)
	}
}

// TestMeterCountsPadding: what follows the end of a tar counts as content does, and is not passed on beyond the limit.
func TestMeterCountsPadding(t *testing.T) {
	const end, most = 1 << 10, 1 << 20
	for name, c := range map[string]struct {
		padding int64
		refused bool
	}{"most": {most, false}, "more": {most + 1, true}} {
		t.Run(name, func(t *testing.T) {
			m := &unpackMeter{unpacked: &unpacked{}, mostBytes: most, mostFiles: 1}
			var passed bytes.Buffer
			err := m.copy(&passed, bytes.NewReader(make([]byte, end+c.padding)))
			refused := err != nil && strings.Contains(err.Error(), "more than 1048576 bytes (max_image_bytes)")
			if refused != c.refused || passed.Len() > end+most {
				t.Errorf("copy = %v after %d bytes, refused = %t, want %t", err, passed.Len(), refused, c.refused)
			}
		})
	}
}
