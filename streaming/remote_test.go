package streaming

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestOutcome(t *testing.T) {
	for _, c := range []struct {
		code int
		err  error
		json string
		text string
	}{
		{0, nil, `{"status":"Success"}`, ""},
		{1, nil, `{"status":"Failure","message":"command terminated with non-zero exit code: 1","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"1"}]}}`, "command terminated with non-zero exit code: 1"},
		{256, nil, `{"status":"Failure","message":"command terminated with non-zero exit code: 255","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"255"}]}}`, "command terminated with non-zero exit code: 255"},
		{-1, nil, `{"status":"Failure","message":"command terminated with non-zero exit code: 255","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"255"}]}}`, "command terminated with non-zero exit code: 255"},
		{3, errors.New(`no "sh"`), `{"status":"Failure","message":"Internal error occurred: no \"sh\"","reason":"InternalError","code":500}`, `Internal error occurred: no "sh"`},
	} {
		o := outcomeOf(c.code, c.err)
		if got := string(o.bytes(true)); got != c.json {
			t.Errorf("%d, %v: %s", c.code, c.err, got)
		}
		if got := string(o.bytes(false)); got != c.text {
			t.Errorf("%d, %v: %s", c.code, c.err, got)
		}
	}
	if long := outcomeOf(0, errors.New(strings.Repeat("x", 1<<20))); len(long.Message) > maxMessage+100 {
		t.Errorf("an error of %d bytes is sent", len(long.Message))
	}
}

func TestReadSizes(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     TerminalSize
	}{
		{"one", `{"Width":80,"Height":24}`, TerminalSize{Width: 80, Height: 24}},
		{"the newest counts", `{"Width":1,"Height":1}{"Width":2,"Height":2}` + "\n" + `{"Width":3,"Height":3}`, TerminalSize{Width: 3, Height: 3}},
		{"empty ones do not", `{"Width":80,"Height":24}{}{"Width":0,"Height":9}{"Height":9}{"Width":9}`, TerminalSize{Width: 80, Height: 24}},
		{"nor what does not fit", `{"Width":80,"Height":24}{"Width":65536,"Height":24}{"Width":1,"Height":1}`, TerminalSize{Width: 80, Height: 24}},
		{"nor what is no JSON", `{"Width":80,"Height":24}garbage`, TerminalSize{Width: 80, Height: 24}},
		{"nor what is endless", `{"Width":80,"Height":24}{"Width":"` + strings.Repeat("9", 1<<20), TerminalSize{Width: 80, Height: 24}},
		{"nothing", "", TerminalSize{}},
	} {
		sizes := make(chan TerminalSize, 1)
		rest := strings.NewReader(c.in)
		readSizes(rest, sizes)
		if got := <-sizes; got != c.want {
			t.Errorf("%s: %+v", c.name, got)
		}
		if _, open := <-sizes; open {
			t.Errorf("%s: more than one size", c.name)
		}
		if rest.Len() > 0 {
			t.Errorf("%s: %d bytes not read, which hold up the session", c.name, rest.Len())
		}
	}
}

// FuzzReadSizes: whatever the client sends is read to its end, and sizes are sizes.
func FuzzReadSizes(f *testing.F) {
	f.Add([]byte(`{"Width":80,"Height":24}`))
	f.Add([]byte(`{"Width":80,"Height":24}{"Width":-1}`))
	f.Add([]byte(`[[[[[[`))
	f.Fuzz(func(t *testing.T, in []byte) {
		sizes := make(chan TerminalSize, 1)
		rest := bytes.NewReader(in)
		readSizes(rest, sizes)
		for size := range sizes {
			if size.Width == 0 || size.Height == 0 {
				t.Errorf("size %+v", size)
			}
		}
		if n, _ := io.Copy(io.Discard, rest); n > 0 {
			t.Errorf("%d bytes not read", n)
		}
	})
}
