package streaming

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestOutcome(t *testing.T) {
	exited := func(code string) string {
		return `{"status":"Failure","message":"command terminated with non-zero exit code: ` + code +
			`","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"` + code + `"}]}}`
	}
	const text = "command terminated with non-zero exit code: "
	for _, c := range []struct {
		code int
		err  error
		json string
		text string
	}{
		{0, nil, `{"status":"Success"}`, ""},
		{1, nil, exited("1"), text + "1"},
		{256, nil, exited("255"), text + "255"},
		{-1, nil, exited("255"), text + "255"},
		{3, errors.New(`no "sh"`),
			`{"status":"Failure","message":"Internal error occurred: no \"sh\"","reason":"InternalError","code":500}`,
			`Internal error occurred: no "sh"`},
	} {
		o := outcomeOf(c.code, c.err)
		if got := string(o.bytes(true)); got != c.json {
			t.Errorf("outcomeOf(%d, %v).bytes(true) = %s, want %s", c.code, c.err, got, c.json)
		}
		if got := string(o.bytes(false)); got != c.text {
			t.Errorf("outcomeOf(%d, %v).bytes(false) = %s, want %s", c.code, c.err, got, c.text)
		}
	}
	if long := outcomeOf(0, errors.New(strings.Repeat("x", 1<<20))); len(long.Message) > maxMessage+100 {
		t.Errorf("length of a long message = %d, want at most %d", len(long.Message), maxMessage+100)
	}
}

func TestReadSizes(t *testing.T) {
	const good = `{"Width":80,"Height":24}`
	size := TerminalSize{Width: 80, Height: 24}
	for _, c := range []struct {
		name, in string
		want     TerminalSize
	}{
		{"one", good, size},
		{"latest of several", `{"Width":1,"Height":1}{"Width":2,"Height":2}` + "\n" + good, size},
		{"empty ones", good + `{}{"Width":0,"Height":9}{"Height":9}{"Width":9}`, size},
		{"out of range", good + `{"Width":65536,"Height":24}{"Width":1,"Height":1}`, size},
		{"no JSON", good + `garbage`, size},
		{"too long", good + `{"Width":"` + strings.Repeat("9", 1<<20), size},
		{"nothing", "", TerminalSize{}},
	} {
		sizes := make(chan TerminalSize, 1)
		rest := strings.NewReader(c.in)
		readSizes(rest, sizes)
		if got := <-sizes; got != c.want {
			t.Errorf("%s: size = %+v, want %+v", c.name, got, c.want)
		}
		if _, open := <-sizes; open {
			t.Errorf("%s: got a second size, want a closed channel", c.name)
		}
		if rest.Len() > 0 {
			t.Errorf("%s: %d bytes left unread, want 0: they block the session", c.name, rest.Len())
		}
	}
}

// FuzzReadSizes: any input is read to its end, and all sizes are above zero.
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
				t.Errorf("size = %+v, want both above 0", size)
			}
		}
		if n, _ := io.Copy(io.Discard, rest); n > 0 {
			t.Errorf("%d bytes left unread, want 0", n)
		}
	})
}
