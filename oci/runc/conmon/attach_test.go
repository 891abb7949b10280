package conmon

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
)

// TestMonitorEnds: whatever the monitor has left undone when it ends, its output is read to the end.
func TestMonitorEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		// serve plays the monitor until it ends, after the client has sent its input.
		serve func(*testing.T, *net.UnixListener)
		want  string
	}{
		"without having accepted": {serve: func(*testing.T, *net.UnixListener) {}},
		"with input unread": {serve: func(t *testing.T, l *net.UnixListener) {
			c, err := l.AcceptUnix()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for _, packet := range []string{"\x02bye\n", "\x03err\n"} {
				if _, err := c.Write([]byte(packet)); err != nil {
					t.Error(err)
				}
			}
		}, want: "bye\nerr\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(dir, "attach"), Net: "unixpacket"})
			if err != nil {
				t.Fatal(err)
			}
			c, err := Attach(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Write([]byte("not read")); err != nil {
				t.Fatal(err)
			}
			tt.serve(t, l)
			l.Close()
			var got string
			for {
				data, _, err := c.Receive()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got += string(data)
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
