package nri

import (
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
)

// checkFields refuses a request of a plugin with fields of a newer protocol: they would be lost.
func checkFields(m proto.Message) error {
	return protorange.Range(m.ProtoReflect(), func(at protopath.Values) error {
		last := at.Index(-1)
		if last.Step.Kind() != protopath.UnknownAccessStep {
			return nil
		}
		number, _, _ := protowire.ConsumeTag(last.Value.Bytes())
		return fmt.Errorf("%w: field %d of %s is newer than version %s of the protocol, podd cannot apply it",
			errdefs.ErrFailedPrecondition, number, at.Path[:len(at.Path)-1], libraryVersion())
	})
}
