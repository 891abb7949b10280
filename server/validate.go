package server

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/containerd/errdefs"
)

// Limits on what a client may send, in bytes or items. They are far above what Kubernetes can produce, and low
// enough that nothing below has to fear a length.
const (
	maxName      = 253     // DNS subdomain, the longest name in Kubernetes
	maxID        = 128     // ours have 64
	maxPath      = 4095    // PATH_MAX less its NUL
	maxImageName = 1024    // the reference grammar allows 255 for the name and 128 for the tag
	maxLabelKey  = 512     // prefix 253 + "/" + name 63, with room
	maxLabels    = 1 << 20 // keys and values together; Kubernetes caps annotations at 256 KiB
	maxItems     = 4096
	maxHostname  = 64 // HOST_NAME_MAX
	maxSecret    = 64 << 10
	maxText      = 1 << 20
)

// check collects the first problem of a request, naming its field. It never repeats a value: the message is
// logged, and what stands in the wrong field may be a secret. After the first problem the others are not looked at.
type check struct {
	path    string
	problem *error
}

func newCheck() check {
	var err error
	return check{problem: &err}
}

// err is nil, or the first problem as errdefs.ErrInvalidArgument.
func (c check) err() error { return *c.problem }

// at returns the check of a nested message.
func (c check) at(field string) check { return check{path: c.name(field), problem: c.problem} }

// item returns the check of one element of a list.
func (c check) item(field string, i int) check {
	return check{path: c.name(field) + "[" + strconv.Itoa(i) + "]", problem: c.problem}
}

func (c check) name(field string) string {
	switch {
	case c.path == "":
		return field
	case field == "":
		return c.path
	}
	return c.path + "." + field
}

// that requires ok; why ends the sentence "<field>: <why>".
func (c check) that(ok bool, field, why string) {
	if !ok && *c.problem == nil {
		*c.problem = fmt.Errorf("%w: %s: %s", errdefs.ErrInvalidArgument, c.name(field), why)
	}
}

// text accepts UTF-8 without NUL of at most max bytes: what C strings and JSON can carry.
func (c check) text(field, s string, max int) {
	c.that(len(s) <= max, field, "is longer than "+strconv.Itoa(max)+" bytes")
	c.that(strings.IndexByte(s, 0) < 0, field, "must not contain a NUL byte")
	c.that(utf8.ValidString(s), field, "must be valid UTF-8")
}

// line is text without control characters, which would break out of a line of a file such as resolv.conf.
func (c check) line(field, s string, max int) {
	c.text(field, s, max)
	c.that(strings.IndexFunc(s, unicode.IsControl) < 0, field, "must not contain control characters")
}

// word is a non-empty line without spaces.
func (c check) word(field, s string, max int) {
	c.that(s != "", field, "must not be empty")
	c.line(field, s, max)
	c.that(strings.IndexFunc(s, unicode.IsSpace) < 0, field, "must not contain spaces")
}

// label is a name of Kubernetes metadata. Which characters those have is not podd's to decide; these few are
// refused because names become CNI arguments ("K=V;K=V") and parts of paths.
func (c check) label(field, s string) {
	c.line(field, s, maxName)
	c.that(!strings.ContainsAny(s, `/\;=`), field, `must not contain any of / \ ; =`)
	c.that(s != "." && s != "..", field, "must not be . or ..")
}

// id is a container or pod id, or a prefix of one; whether it exists is the engine's question.
func (c check) id(field, s string) {
	c.word(field, s, maxID)
	c.that(!strings.ContainsAny(s, `/\`), field, "must not contain slashes")
}

// absolute is an absolute path.
func (c check) absolute(field, s string) {
	c.text(field, s, maxPath)
	c.that(path.IsAbs(s), field, "must be an absolute path")
}

// beneath is a path that stays below where it starts.
func (c check) beneath(field, s string) {
	c.text(field, s, maxPath)
	c.that(s != "", field, "must not be empty")
	c.that(!path.IsAbs(s), field, "must be a relative path")
	c.that(!hasDotDot(s), field, "must not contain ..")
}

func hasDotDot(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}

// between requires lo <= v <= hi.
func (c check) between(field string, v, lo, hi int64) {
	c.that(lo <= v && v <= hi, field, fmt.Sprintf("is %d, must be from %d to %d", v, lo, hi))
}

// known requires an enum value that has a name.
func known[E ~int32](c check, field string, v E, names map[int32]string) {
	_, ok := names[int32(v)]
	c.that(ok, field, "has the unknown value "+strconv.Itoa(int(v)))
}

// count bounds the length of a list.
func (c check) count(field string, n int) {
	c.that(n <= maxItems, field, "has more than "+strconv.Itoa(maxItems)+" entries")
}

// labels checks labels and annotations: their sizes, nothing else, for they must come back unaltered.
func (c check) labels(field string, m map[string]string) {
	total := 0
	for k, v := range m {
		total += len(k) + len(v)
		c.that(k != "", field, "must not have an empty key")
		c.text(field, k, maxLabelKey)
		c.text(field, v, maxLabels)
	}
	c.that(total <= maxLabels, field, "are larger than "+strconv.Itoa(maxLabels)+" bytes together")
}
