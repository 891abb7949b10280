package streaming

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	wire "k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// maxMessageBytes bounds one WebSocket message from a client, as in other servers (golang.org/x/net/websocket); kubectl
// sends 32 KiB. No message is kept as a whole.
const maxMessageBytes = 32 << 20

var errLongMessage = fmt.Errorf("client sent a WebSocket message of more than %d MiB", maxMessageBytes>>20)

// WebSocket subprotocols of exec and attach. Each message begins with its channel number; the base64 variants send
// text. Version 4 added structured outcomes, version 5 a message that closes a channel. Web consoles use the old ones.
const (
	channelV5       = wire.StreamProtocolV5Name
	channelV4       = wire.StreamProtocolV4Name
	channelV4Base64 = "v4.base64.channel.k8s.io"
	channelV1       = wire.StreamProtocolV1Name
	channelV1Base64 = "base64.channel.k8s.io"
)

// openWebSocket upgrades to WebSocket. All channels exist from the start.
func (s *Server) openWebSocket(
	sess *session, w http.ResponseWriter, r *http.Request, want streamRequest,
) (*remote, error) {
	ws, err := upgradeWebSocket(w, r, channelV5, channelV4, channelV4Base64, channelV1, channelV1Base64)
	if err != nil {
		return nil, err
	}
	version := ws.Subprotocol()
	c := newChannels(sess, ws)
	rem := &remote{}
	if want.GetTty() { // without a terminal nothing reads sizes, but some clients send them
		rem.resize = c.input(wire.StreamResize)
	}
	if want.GetStdin() {
		rem.streams.Stdin = c.input(wire.StreamStdIn)
	}
	status := c.output(wire.StreamErr)
	first := status
	if want.GetStderr() {
		first = c.output(wire.StreamStdErr)
		rem.streams.Stderr = first
	}
	if want.GetStdout() {
		first = c.output(wire.StreamStdOut)
		rem.streams.Stdout = first
	}
	c.start()
	first.sendReady()
	rem.finish = func(o outcome) {
		structured := version == channelV5 || version == channelV4 || version == channelV4Base64
		if b := o.bytes(structured); len(b) > 0 {
			_, _ = status.Write(b) // an error means that the client has disconnected
		}
		c.close()
	}
	return rem, nil
}

// upgradeWebSocket accepts the first protocol that the client offers and podd knows; a client that offers none gets
// the oldest. Errors are also sent to the client.
func upgradeWebSocket(w http.ResponseWriter, r *http.Request, protocols ...string) (*websocket.Conn, error) {
	known := func(protocol string) bool { return slices.Contains(protocols, protocol) }
	up := websocket.Upgrader{
		Subprotocols: protocols,
		// Fits a channel number and maxFrame bytes in base64: one frame per message.
		WriteBufferSize: 64 << 10, ReadBufferSize: 4 << 10,
		// The token authorizes the request, no cookie does, so the origin does not matter.
		CheckOrigin: func(*http.Request) bool { return true },
	}
	if offered := websocket.Subprotocols(r); len(offered) > 0 && !slices.ContainsFunc(offered, known) {
		http.Error(w, fmt.Sprintf("no requested WebSocket protocol is supported, use one of %q", protocols),
			http.StatusForbidden)
		return nil, errors.New("client offered no supported WebSocket protocol")
	}
	ws, err := up.Upgrade(w, r, nil)
	if err != nil {
		return nil, fmt.Errorf("upgrade to WebSocket: %w", err)
	}
	ws.SetReadLimit(maxMessageBytes)
	return ws, nil
}

// answerPings replies to pings without blocking the reader, and sends a heartbeat, until the session ends. The
// heartbeat is a pong: kubectl disconnects after 61 seconds without one, and its pings are not read while a command
// does not read its input.
func answerPings(sess *session, ws *websocket.Conn) {
	pings := make(chan string, 1)
	ws.SetPingHandler(func(data string) error {
		select {
		case pings <- data:
		default:
		}
		return nil
	})
	sess.tasks.Go(func() {
		tick := time.NewTicker(sess.timing.heartbeat)
		defer tick.Stop()
		for {
			data := ""
			select {
			case <-sess.ctx.Done():
				return
			case data = <-pings:
			case <-tick.C:
			}
			// No deadline: it would break the connection of a client that reads slowly.
			_ = ws.WriteControl(websocket.PongMessage, []byte(data), time.Time{})
		}
	})
}

// channels are the numbered streams within one WebSocket.
type channels struct {
	sess *session
	ws   *websocket.Conn
	// text is set for base64 messages, canClose when the client can close a channel.
	text, canClose bool
	// in has the pipes of the channels that are read. It does not change after start.
	in map[byte]*pipe
	// buf is for the message that is read.
	buf []byte

	writeMu sync.Mutex
	closed  bool
}

type pipe struct {
	r *io.PipeReader
	w *io.PipeWriter
}

func newChannels(sess *session, ws *websocket.Conn) *channels {
	version := ws.Subprotocol()
	return &channels{
		sess: sess, ws: ws, in: map[byte]*pipe{}, buf: make([]byte, maxFrame),
		text:     version == channelV1Base64 || version == channelV4Base64,
		canClose: version == channelV5,
	}
}

// input returns a reader of the channel.
func (c *channels) input(number byte) io.Reader {
	p := &pipe{}
	p.r, p.w = io.Pipe()
	c.in[number] = p
	return &channelReader{p.r, c.sess}
}

func (c *channels) output(number byte) *channelWriter { return &channelWriter{c: c, number: number} }

// start starts to read from the client.
func (c *channels) start() {
	answerPings(c.sess, c.ws)
	c.sess.tasks.Go(func() {
		err := c.read()
		c.sess.connLost(err)
		for _, p := range c.in {
			p.w.CloseWithError(err)
		}
	})
}

// read delivers messages to their channels until the connection ends.
func (c *channels) read() error {
	for {
		_, message, err := c.ws.NextReader()
		if err == nil {
			err = c.deliver(message)
		} else if !errors.Is(err, websocket.ErrReadLimit) {
			return errGone
		}
		switch {
		case errors.Is(err, websocket.ErrReadLimit):
			return errLongMessage
		case err != nil:
			return err
		}
	}
}

// deliver handles one message, without keeping it: its channel may not be read. Messages for other channels than in are
// dropped; an error ends the session.
func (c *channels) deliver(message io.Reader) error {
	var number [1]byte
	if _, err := io.ReadFull(message, number[:]); err != nil {
		return ignoreEOF(err)
	}
	if c.canClose && number[0] == wire.StreamClose {
		return c.closeInput(message)
	}
	if c.text {
		number[0] -= '0'
		message = base64.NewDecoder(base64.StdEncoding, message)
	}
	c.sess.touch()
	w := io.Discard
	if p := c.in[number[0]]; p != nil {
		w = &untilError{w: p.w}
	}
	var malformed base64.CorruptInputError
	_, err := io.CopyBuffer(w, struct{ io.Reader }{message}, c.buf)
	if errors.As(err, &malformed) || c.text && errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("client sent malformed base64")
	}
	return err
}

// closeInput handles the rest of a message that closes a channel.
func (c *channels) closeInput(message io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(message, 2))
	if err != nil {
		return err
	}
	if len(b) != 1 {
		return errors.New("client sent a malformed close message")
	}
	if p := c.in[b[0]]; p != nil {
		p.w.Close()
	}
	return nil
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// untilError drops everything written after an error, which means that the channel is no longer read.
type untilError struct {
	w      io.Writer
	failed bool
}

func (u *untilError) Write(p []byte) (int, error) {
	if !u.failed {
		_, err := u.w.Write(p)
		u.failed = err != nil
	}
	return len(p), nil
}

// send writes one message.
func (c *channels) send(number byte, data []byte) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if c.closed {
		return io.ErrClosedPipe
	}
	if c.text {
		message := make([]byte, 1+base64.StdEncoding.EncodedLen(len(data)))
		message[0] = '0' + number
		base64.StdEncoding.Encode(message[1:], data)
		return c.ws.WriteMessage(websocket.TextMessage, message)
	}
	w, err := c.ws.NextWriter(websocket.BinaryMessage)
	if err != nil {
		return err
	}
	_, _ = w.Write([]byte{number}) // buffered
	_, _ = w.Write(data)
	return w.Close()
}

// close sends a close message. Readers get an error from here on, so that further input is read and dropped.
func (c *channels) close() {
	c.writeMu.Lock()
	c.closed = true
	c.writeMu.Unlock()
	closing := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = c.ws.WriteControl(websocket.CloseMessage, closing, time.Time{})
	for _, p := range c.in {
		p.r.CloseWithError(io.ErrClosedPipe)
	}
}

type channelReader struct {
	r    io.Reader
	sess *session
}

func (r *channelReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.sess.touch()
	return n, err
}

// channelWriter is a channel to the client.
type channelWriter struct {
	c      *channels
	number byte

	mu     sync.Mutex
	closed bool
}

// sendReady sends an empty message, by which older clients notice that the session is open.
func (w *channelWriter) sendReady() { _ = w.c.send(w.number, nil) }

func (w *channelWriter) Write(p []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(p) > 0 {
		if w.closed {
			return n, io.ErrClosedPipe
		}
		part := p[:min(len(p), maxFrame)]
		if err := w.c.send(w.number, part); err != nil {
			return n, err
		}
		w.c.sess.touch()
		n, p = n+len(part), p[len(part):]
	}
	return n, nil
}

// Close ends this writer; the protocol cannot signal it to the client before the session ends.
func (w *channelWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return nil
}
