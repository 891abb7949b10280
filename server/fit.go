package server

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/podd-project/podd/sandbox/budget"
)

// checkSize limits what one request makes podd keep, whatever fields it has.
func checkSize(req any) error {
	c := newCheck()
	if m, ok := req.(proto.Message); ok {
		c.size("request", m, budget.MaxRequest)
	}
	return c.err()
}

// fittingStream is a stream whose messages fit.
type fittingStream struct {
	grpc.ServerStream
	server *Server
	call   *call
}

func (f fittingStream) SendMsg(m any) error { return f.ServerStream.SendMsg(f.server.fit(f.call, m)) }

// fit returns an answer that clients can receive. The budget "lists and statuses" bounds what new pods add to answers;
// pods of an older podd, or thousands of pods, can have more. Rather than no answer the client gets one without the
// largest annotations and the like, and a line of the log says so.
func (s *Server) fit(c *call, resp any) any {
	m, ok := resp.(proto.Message)
	if !ok || proto.Size(m) <= maxMessage {
		return resp
	}
	small, left := shrink(m, maxMessage)
	if held, now := s.failing.next("answer of "+c.method, c.start); now {
		s.deps.Log.WithFields(logrus.Fields{
			"method": c.method, "bytes": proto.Size(m), "left_out": left, "repeated": held,
		}).Warn("answer is larger than a message, left out its largest parts")
	}
	return small
}

// shrinkable returns the names of the fields that an answer can do without, the least important first.
func shrinkable() []protoreflect.Name {
	return []protoreflect.Name{"info", "annotations", "mounts", "unified", "labels"}
}

// shrink returns a copy of m without as many shrinkable fields and entries of maps as must be left out for limit bytes,
// and their number by name. The copy is larger if they are not enough.
func shrink(m proto.Message, limit int) (proto.Message, map[protoreflect.Name]int) {
	wire, err := proto.Marshal(m) // items of lists are encoded already, see listCache
	small := m.ProtoReflect().New()
	if err != nil || proto.Unmarshal(wire, small.Interface()) != nil {
		return m, nil
	}
	left := map[protoreflect.Name]int{}
	size := len(wire)
	for _, kubelets := range []bool{false, true} {
		for _, name := range shrinkable() {
			for _, p := range largestParts(small, name, kubelets) {
				if size <= limit {
					return small.Interface(), left
				}
				p.remove()
				size -= p.size
				left[name]++
			}
		}
	}
	return small.Interface(), left
}

// part is a field of a message or an entry of a map, with its size in bytes.
type part struct {
	remove func()
	size   int
}

// largestParts returns the fields with that name of m and the messages in it, entries if they are maps, the largest
// first: those that the kubelet needs or the others.
func largestParts(m protoreflect.Message, name protoreflect.Name, kubelets bool) (all []part) {
	walkFields(m, func(owner protoreflect.Message, field protoreflect.FieldDescriptor, v protoreflect.Value) {
		switch {
		case field.Name() != name:
		case field.IsMap():
			v.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
				if isKubelets(key.String(), value.String()) == kubelets {
					remove := func() { owner.Mutable(field).Map().Clear(key) }
					all = append(all, part{remove, len(key.String()) + len(value.String())})
				}
				return true
			})
		case !kubelets:
			alone := owner.New()
			alone.Set(field, v)
			all = append(all, part{func() { owner.Clear(field) }, proto.Size(alone.Interface())})
		}
	})
	slices.SortFunc(all, func(a, b part) int { return cmp.Compare(b.size, a.size) })
	return all
}

// isKubelets reports whether an entry of a map is one by which the kubelet knows its pods and containers, such as
// io.kubernetes.pod.uid and io.kubernetes.container.hash. It writes a container's preStop hook under such a key, too.
func isKubelets(key, value string) bool {
	const most = 256
	return strings.HasPrefix(key, "io.kubernetes.") && len(key)+len(value) <= most
}

// walkFields calls visit with each field that is set in m or in a message in m.
func walkFields(
	m protoreflect.Message, visit func(protoreflect.Message, protoreflect.FieldDescriptor, protoreflect.Value),
) {
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		visit(m, field, v)
		switch {
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := range v.List().Len() {
				walkFields(v.List().Get(i).Message(), visit)
			}
		default:
			walkFields(v.Message(), visit)
		}
		return true
	})
}
