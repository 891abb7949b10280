package server

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	"github.com/podd-project/podd/sandbox/budget"
)

// Limits of requests, in bytes or items. They are far above what Kubernetes sends, and low enough that no code below
// has to limit a length.
const (
	maxName      = 253     // DNS subdomain, the longest name in Kubernetes
	maxID        = 128     // podd's ids have 64
	maxPath      = 4095    // PATH_MAX without the NUL
	maxImageName = 1024    // the reference grammar allows 255 for the name and 128 for the tag
	maxLabelKey  = 512     // Kubernetes allows 317: prefix 253 + "/" + name 63
	maxLabels    = 1 << 20 // keys and values together; Kubernetes allows 256 KiB of annotations
	maxItems     = 4096
	maxHostname  = 64 // HOST_NAME_MAX
	maxSecret    = 64 << 10
	// What execve(2) takes: MAX_ARG_STRLEN, with the NUL, and a quarter of the usual stack limit of 8 MiB.
	maxArgument  = 128 << 10
	maxArguments = 2 << 20 // with pointers
	// Images that are volumes of a container. Each is a mount of the node.
	maxImageVolumes = 64
	// Limits of resources, which podd keeps in a container's status.
	maxResources = 64 << 10
)

// check records the first problem of a request, with the field's name. The message never contains the value, as it is
// logged, and the value may be a secret in the wrong field.
type check struct {
	path    string
	problem *error
}

func newCheck() check {
	var err error
	return check{problem: &err}
}

// err returns the first problem as errdefs.ErrInvalidArgument, or nil.
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

// size limits the cost of keeping a message, see budget.Cost.
func (c check) size(field string, m proto.Message, max int64) {
	c.that(budget.Cost(m) <= max, field, fmt.Sprintf("must not take more than %d bytes as JSON", max))
}

// that records the problem "<field>: <why>" unless ok.
func (c check) that(ok bool, field, why string) {
	if !ok && *c.problem == nil {
		*c.problem = fmt.Errorf("%w: %s: %s", errdefs.ErrInvalidArgument, c.name(field), why)
	}
}

// text requires UTF-8 without NUL of at most max bytes, as C strings and JSON do.
func (c check) text(field, s string, max int) {
	c.that(len(s) <= max, field, "must not be longer than "+strconv.Itoa(max)+" bytes")
	c.that(strings.IndexByte(s, 0) < 0, field, "must not contain a NUL byte")
	c.that(utf8.ValidString(s), field, "must be valid UTF-8")
}

// line is text without control characters, which could add lines to files such as resolv.conf.
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

// label is a name of Kubernetes metadata. Only characters that would change the meaning of CNI arguments ("K=V;K=V") or
// of paths are refused.
func (c check) label(field, s string) {
	c.line(field, s, maxName)
	c.that(!strings.ContainsAny(s, `/\;=`), field, `must not contain any of / \ ; =`)
	c.that(s != "." && s != "..", field, "must not be . or ..")
}

// id is a container or pod id, or a prefix of one. The engine checks that it exists.
func (c check) id(field, s string) {
	c.word(field, s, maxID)
	c.that(!strings.ContainsAny(s, `/\`), field, `must not contain / or \`)
}

// absolute is an absolute path.
func (c check) absolute(field, s string) {
	c.text(field, s, maxPath)
	c.that(path.IsAbs(s), field, "must be an absolute path")
}

// beneath is a relative path without "..".
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

// count limits the length of a list.
func (c check) count(field string, n int) {
	c.that(n <= maxItems, field, "must not have more than "+strconv.Itoa(maxItems)+" entries")
}

// labels checks only the sizes of labels and annotations: they are returned unchanged.
func (c check) labels(field string, m map[string]string) {
	total := 0
	for k, v := range m {
		total += len(k) + len(v)
		c.that(k != "", field, "must not have an empty key")
		c.text(field, k, maxLabelKey)
		c.text(field, v, maxLabels)
	}
	c.that(total <= maxLabels, field, "must not have more than "+strconv.Itoa(maxLabels)+" bytes in total")
}
