package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"

	"github.com/containerd/errdefs/pkg/errhttp"
)

// maxAnswer is the number of bytes that the client reads of an answer.
const maxAnswer = 256 << 20

// Client calls the daemon behind a socket.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a client of the daemon behind the socket. It connects at each call.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return &Client{socket: socket, http: &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial},
	}}
}

// Running reports whether a daemon listens on the socket.
func (c *Client) Running() bool {
	conn, err := net.Dial("unix", c.socket)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// Get decodes the answer to a GET of a path without the version, "/status?pod=x".
func (c *Client) Get(ctx context.Context, path string, into any) error {
	return c.Do(ctx, http.MethodGet, path, nil, into)
}

// Do makes a request with body as JSON, unless it is nil, and decodes the answer into into, unless that is nil.
func (c *Client) Do(ctx context.Context, method, path string, body, into any) error {
	var sent io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(data)
	}
	answer, err := c.Open(ctx, method, path, sent)
	if err != nil {
		return err
	}
	defer answer.Close()
	if into == nil {
		return nil
	}
	return c.decode(answer, into)
}

// Upload has the daemon load the images of an archive.
func (c *Client) Upload(ctx context.Context, archive io.Reader) (loaded Loaded, err error) {
	answer, err := c.Open(ctx, http.MethodPost, uploadPath, archive)
	if err != nil {
		return loaded, err
	}
	defer answer.Close()
	return loaded, c.decode(answer, &loaded)
}

func (c *Client) decode(answer io.Reader, into any) error {
	if err := json.NewDecoder(io.LimitReader(answer, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf("decode the answer of the daemon at %s: %w", c.socket, err)
	}
	return nil
}

// Open makes a request and returns the body of the answer. An answer other than success is an error, of the errdefs
// kind that the daemon's had.
func (c *Client) Open(ctx context.Context, method, path string, body io.Reader) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://podd"+version+path, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("no daemon listens on %s: is podd running?", c.socket)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%s is for root only: run this command as root", c.socket)
	}
	if err != nil {
		return nil, fmt.Errorf("call the daemon at %s: %w", c.socket, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRequest))
	var failed Error
	if err != nil || json.Unmarshal(text, &failed) != nil {
		failed.Error = fmt.Sprintf("%s %s: %s: %.200s", method, path, resp.Status, text)
	}
	return nil, answered{text: failed.Error, kind: errhttp.ToNative(resp.StatusCode)}
}

// answered is an error that the daemon answered.
type answered struct {
	text string
	kind error
}

func (e answered) Error() string { return e.text }
func (e answered) Unwrap() error { return e.kind }
