package streaming

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestWebSocketProtocols uses each subprotocol without client-go, as web consoles do.
func TestWebSocketProtocols(t *testing.T) {
	b := backend{exec: func(_ context.Context, _ string, cmd []string, s Streams) (int, error) {
		if s.Stdin == nil {
			return 7, nil
		}
		word := make([]byte, 4)
		if _, err := io.ReadFull(s.Stdin, word); err != nil {
			return 0, err
		}
		fmt.Fprintf(s.Stdout, "out %s", word)
		fmt.Fprintf(s.Stderr, "err %s", word)
		if len(cmd) > 0 {
			return 0, errors.New(cmd[0])
		}
		return 7, nil
	}}
	const status7 = `{"status":"Failure","message":"command terminated with non-zero exit code: 7",` +
		`"reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}`
	const text7 = "command terminated with non-zero exit code: 7"
	for _, c := range []struct {
		protocol string
		text     bool
		status   string
	}{
		{"v5.channel.k8s.io", false, status7},
		{"v4.channel.k8s.io", false, status7},
		{"v4.base64.channel.k8s.io", true, status7},
		{"channel.k8s.io", false, text7},
		{"base64.channel.k8s.io", true, text7},
		{"", false, text7},
	} {
		t.Run(c.protocol, func(t *testing.T) {
			r := start(t, b)
			ws := dialWebSocket(t, r.execURL(), nonEmpty("bogus.k8s.io", c.protocol)...)
			if ws.Subprotocol() != c.protocol {
				t.Fatalf("subprotocol = %q, want %q", ws.Subprotocol(), c.protocol)
			}
			send := func(channel byte, data string) {
				kind, message := websocket.BinaryMessage, append([]byte{channel}, data...)
				if c.text {
					encoded := base64.StdEncoding.EncodeToString([]byte(data))
					kind, message = websocket.TextMessage, append([]byte{'0' + channel}, encoded...)
				}
				if err := ws.WriteMessage(kind, message); err != nil {
					t.Fatal(err)
				}
			}
			send(0, "wo")
			send(9, "not a channel that is read")
			send(1, "output channel")
			send(4, `{"Width":80,"Height":24}`) // clients send sizes also without a terminal
			if c.protocol != "v5.channel.k8s.io" {
				send(255-'0', "no close message in older versions")
			}
			ws.WriteMessage(websocket.BinaryMessage, nil)
			send(0, "rd")
			got := collect(t, ws, c.text)
			if got[1] != "out word" || got[2] != "err word" || got[3] != c.status {
				t.Errorf("channels = %q, want %q, %q and %q", got, "out word", "err word", c.status)
			}
		})
	}
}

// nonEmpty returns the protocols that a client offers: none for "".
func nonEmpty(other, protocol string) []string {
	if protocol == "" {
		return nil
	}
	return []string{other, protocol}
}

// collect reads all channels until the server's close message.
func collect(t *testing.T, ws *websocket.Conn, text bool) map[byte]string {
	t.Helper()
	got := map[byte]string{}
	for {
		_, message, err := ws.ReadMessage()
		if websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			return got
		}
		if err != nil {
			t.Fatalf("read: %v after %q, want a close message", err, got)
		}
		channel, data := message[0], message[1:]
		if text {
			channel -= '0'
			if data, err = base64.StdEncoding.DecodeString(string(data)); err != nil {
				t.Fatal(err)
			}
		}
		got[channel] += string(data)
	}
}

// TestWebSocketMalformed: a malformed message ends the session, and nothing else.
func TestWebSocketMalformed(t *testing.T) {
	for _, c := range []struct {
		name, protocol string
		kind           int
		message        []byte
	}{
		{"close message without a channel", "v5.channel.k8s.io", websocket.BinaryMessage, []byte{255}},
		{"close message with two channels", "v5.channel.k8s.io", websocket.BinaryMessage, []byte{255, 0, 1}},
		{"base64", "base64.channel.k8s.io", websocket.TextMessage, []byte("0***")},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, started, ended := held()
			r := start(t, b)
			ws := dialWebSocket(t, r.execURL(), c.protocol)
			recv(t, "the session", started)
			ws.WriteMessage(c.kind, c.message) // fails when the server disconnects before the end
			if err := recv(t, "the session to end", ended); err == nil {
				t.Error("cause = nil, want an error")
			}
			r.noSession()
		})
	}
}

// TestWebSocketLongMessages: other servers take messages of 32 MiB, in one frame or in many.
func TestWebSocketLongMessages(t *testing.T) {
	for name, buffer := range map[string]int{"many frames": 4 << 10, "one frame": maxMessageBytes + 1<<10} {
		t.Run(name, func(t *testing.T) {
			b, started, ended := held()
			r := start(t, b)
			dialer := websocket.Dialer{Subprotocols: []string{"v5.channel.k8s.io"}, WriteBufferSize: buffer}
			ws, _, err := dialer.Dial("ws"+r.execURL()[len("http"):], nil)
			if err != nil {
				t.Fatal(err)
			}
			defer ws.Close()
			streams, read := recv(t, "the session", started), make(chan error, 1)
			go func() {
				_, err := io.CopyN(io.Discard, streams.Stdin, 5<<20)
				read <- err
			}()
			if err := ws.WriteMessage(websocket.BinaryMessage, make([]byte, 1+5<<20)); err != nil {
				t.Fatal(err)
			}
			if err := recv(t, "the message", read); err != nil {
				t.Errorf("read of 5 MiB = %v, want no error", err)
			}
			ws.WriteMessage(websocket.BinaryMessage, append([]byte{9}, make([]byte, maxMessageBytes)...)) // fails early
			wantCause(t, ended, errLongMessage)
			r.noSession()
		})
	}
}

// TestWebSocketCloseOfUnknownChannel: closing a channel that is not read does not end the session.
func TestWebSocketCloseOfUnknownChannel(t *testing.T) {
	b := backend{exec: func(_ context.Context, _ string, _ []string, s Streams) (int, error) {
		_, err := io.ReadAll(s.Stdin)
		return 0, err
	}}
	ws := dialWebSocket(t, start(t, b).execURL(), "v5.channel.k8s.io")
	for _, channel := range []byte{1, 77, 255, 0, 0} {
		if err := ws.WriteMessage(websocket.BinaryMessage, []byte{255, channel}); err != nil {
			t.Fatal(err)
		}
	}
	const want = `{"status":"Success"}`
	if got := collect(t, ws, false); got[3] != want {
		t.Errorf("outcome = %q, want %q", got[3], want)
	}
}

func TestWebSocketRefusals(t *testing.T) {
	b, _, _ := held()
	r := start(t, b)
	forward := func() string { return r.url(r.PortForward("", &cri.PortForwardRequest{PodSandboxId: "p1"})) }
	for _, c := range []struct {
		name, url, protocol string
	}{
		{"exec with an unknown protocol", r.execURL(), "v6.channel.k8s.io"},
		{"exec with port-forward's protocol", r.execURL(), "SPDY/3.1+portforward.k8s.io"},
		{"port-forward with exec's protocol", forward(), "v5.channel.k8s.io"},
		{"port-forward with an unknown tunnel", forward(), "SPDY/3.1+other.k8s.io"},
	} {
		dialer := websocket.Dialer{Subprotocols: []string{c.protocol}}
		_, resp, err := dialer.Dial("ws"+strings.TrimPrefix(c.url, "http"), nil)
		if err == nil || resp == nil || resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: dial = %v, response %v; want status 403", c.name, err, resp)
		}
	}
}

// TestWebSocketAnswersPings: pings are answered, and heartbeats sent, while the command does not read its input.
func TestWebSocketAnswersPings(t *testing.T) {
	b, started, _ := held()
	r := start(t, b)
	ws := dialWebSocket(t, r.execURL(), "v5.channel.k8s.io")
	recv(t, "the session", started)
	answers := make(chan string, 1024)
	ws.SetPongHandler(func(data string) error { answers <- data; return nil })
	go func() {
		for {
			if _, _, err := ws.ReadMessage(); err != nil {
				return
			}
		}
	}()
	if err := ws.WriteControl(websocket.PingMessage, []byte("are you there"), noDeadline); err != nil {
		t.Fatal(err)
	}
	for recv(t, "the answer to a ping", answers) != "are you there" {
	}
	for range 2 { // the first blocks on the command, the second behind it
		if err := ws.WriteMessage(websocket.BinaryMessage, []byte("\x00input")); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if data := recv(t, "a heartbeat", answers); data != "" {
			t.Errorf("heartbeat = %q, want an empty pong", data)
		}
	}
}

// FuzzDeliver: no message of a client panics, and none reaches a channel that it does not name.
func FuzzDeliver(f *testing.F) {
	f.Add([]byte{0, 'a'}, false, true)
	f.Add([]byte{255, 0}, false, true)
	f.Add([]byte("0aGVsbG8="), true, false)
	f.Add([]byte{}, true, true)
	f.Fuzz(func(t *testing.T, message []byte, text, canClose bool) {
		c := &channels{
			sess: newSession(t.Context(), 0, realTime), in: map[byte]*pipe{}, text: text, canClose: canClose,
		}
		got := make(chan []byte)
		for number := range byte(2) {
			r := c.input(number)
			go func() {
				all, _ := io.ReadAll(r)
				got <- all
			}()
		}
		err := c.deliver(bytes.NewReader(message))
		for number := range byte(2) {
			c.in[number].w.Close()
		}
		if n := len(<-got) + len(<-got); n > 0 && (err != nil && !text || n >= len(message)) {
			t.Errorf("deliver(%q) = %v, delivered %d bytes; want none with an error, else fewer than sent", message, err, n)
		}
	})
}
