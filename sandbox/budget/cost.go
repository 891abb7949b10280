package budget

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
)

// MaxRequest is the maximum Cost of a request, in bytes.
const MaxRequest = 4 << 20

// valueCost is the cost of each field and element of a message in addition to its text: in memory, and as JSON.
const valueCost = 16

// Cost returns about how many bytes podd needs to keep m: in memory, in a record, in config.json. It counts no further
// than MaxRequest.
func Cost(m proto.Message) int64 {
	n := int64(proto.Size(m))
	_ = protorange.Range(m.ProtoReflect(), func(p protopath.Values) error { // the only error is the one below
		if n > MaxRequest {
			return protorange.Terminate
		}
		n += valueCost
		last := p.Index(-1)
		if last.Step.Kind() == protopath.MapIndexStep {
			n += escapes(last.Step.MapIndex().String())
		}
		switch v := last.Value.Interface().(type) {
		case string:
			n += escapes(v)
		case []byte:
			n += max(escapes(string(v)), int64(len(v)+2)/3) // text in config.json, base64 in a record
		}
		return nil
	})
	return n
}

// escapes returns how many bytes s has more in JSON, see checkpoint.PlainJSON.
func escapes(s string) (n int64) {
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"', c == '\\', c == '\n', c == '\r', c == '\t':
			n++
		case c < ' ':
			n += 5
		case c == 0xe2: // the first of three bytes of U+2028 and U+2029, and of others that are not escaped
			n += 3
		}
	}
	return n
}
