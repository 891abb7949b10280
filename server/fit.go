package server

import (
	"cmp"
	"slices"

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

// shrink returns a copy of m without as many shrinkable fields as must be left out for limit bytes, and their number by
// name. The copy is larger if they are not enough.
func shrink(m proto.Message, limit int) (proto.Message, map[protoreflect.Name]int) {
	wire, err := proto.Marshal(m) // items of lists are encoded already, see listCache
	small := m.ProtoReflect().New()
	if err != nil || proto.Unmarshal(wire, small.Interface()) != nil {
		return m, nil
	}
	left := map[protoreflect.Name]int{}
	size := len(wire)
	for _, name := range shrinkable() {
		for _, f := range largestFields(small, name) {
			if size <= limit {
				return small.Interface(), left
			}
			f.owner.Clear(f.field)
			size -= f.size
			left[name]++
		}
	}
	return small.Interface(), left
}

// sizedField is a field of a message, with its size in bytes.
type sizedField struct {
	owner protoreflect.Message
	field protoreflect.FieldDescriptor
	size  int
}

// largestFields returns the fields with that name of m and the messages in it, the largest first.
func largestFields(m protoreflect.Message, name protoreflect.Name) (all []sizedField) {
	walkFields(m, func(owner protoreflect.Message, field protoreflect.FieldDescriptor, v protoreflect.Value) {
		if field.Name() == name {
			alone := owner.New()
			alone.Set(field, v)
			all = append(all, sizedField{owner, field, proto.Size(alone.Interface())})
		}
	})
	slices.SortFunc(all, func(a, b sizedField) int { return cmp.Compare(b.size, a.size) })
	return all
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
