package image

import (
	"bytes"
	"strings"
	"testing"
)

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
