package tracing

import (
	"fmt"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
)

// outcomes count the spans that were to be sent.
type outcomes struct{ sent, dropped, failed, rejected atomic.Uint64 }

// Spans returns how many spans were to be sent since the start, by outcome: sent; dropped, as the queue was full;
// failed, as the collector could not be reached; rejected by the collector.
func (t *Tracer) Spans() map[string]uint64 {
	return map[string]uint64{
		"sent": t.outcomes.sent.Load(), "dropped": t.outcomes.dropped.Load(),
		"failed": t.outcomes.failed.Load(), "rejected": t.outcomes.rejected.Load(),
	}
}

// taken counts a batch that the collector has answered, and returns an error if it has rejected spans. Answer is the
// encoded ExportTraceServiceResponse.
func (t *Tracer) taken(batch int, answer []byte) error {
	rejected, reason := partialSuccess(answer)
	rejected = min(rejected, uint64(batch))
	t.outcomes.sent.Add(uint64(batch) - rejected)
	t.outcomes.rejected.Add(rejected)
	if rejected == 0 {
		return nil // a reason without spans is a remark
	}
	return fmt.Errorf("the collector rejected %d of %d spans: %.200q", rejected, batch, reason)
}

// Numbers of the fields in an ExportTraceServiceResponse (opentelemetry-proto, collector/trace/v1).
const (
	fieldPartialSuccess = 1
	fieldRejectedSpans  = 1
	fieldErrorMessage   = 2
)

// partialSuccess returns how many spans a collector says that it rejected, and why. A malformed answer rejects none.
func partialSuccess(answer []byte) (rejected uint64, reason string) {
	readFields(answer, func(n protowire.Number, kind protowire.Type, value []byte) {
		if n != fieldPartialSuccess || kind != protowire.BytesType {
			return
		}
		partial, _ := protowire.ConsumeBytes(value)
		readFields(partial, func(n protowire.Number, kind protowire.Type, value []byte) {
			switch {
			case n == fieldRejectedSpans && kind == protowire.VarintType:
				rejected, _ = protowire.ConsumeVarint(value)
			case n == fieldErrorMessage && kind == protowire.BytesType:
				text, _ := protowire.ConsumeBytes(value)
				reason = string(text)
			}
		})
	})
	return rejected, reason
}

// readFields calls visit for each field of a message, until one is malformed.
func readFields(message []byte, visit func(protowire.Number, protowire.Type, []byte)) {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return
		}
		size := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if size < 0 {
			return
		}
		visit(number, kind, message[tag:tag+size])
		message = message[tag+size:]
	}
}
