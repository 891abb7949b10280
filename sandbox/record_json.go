package sandbox

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// recordVersion and statusVersion are the formats of the files that this package writes.
const (
	recordVersion = 1
	statusVersion = 1
)

// cri.KeyValue's own JSON form replaces bytes that are not UTF-8, so CRI messages are kept in protobuf's JSON form.

// MarshalJSON writes the record as it stands in record.json.
func (r PodRecord) MarshalJSON() ([]byte, error) {
	type plain PodRecord // without this method
	config, err := marshalProto(r.Config)
	if err != nil {
		return nil, err
	}
	r.Config = nil
	return json.Marshal(struct {
		plain
		Config json.RawMessage
	}{plain(r), config})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *PodRecord) UnmarshalJSON(data []byte) error {
	type plain PodRecord
	in := struct {
		*plain
		Config json.RawMessage
	}{plain: (*plain)(r)}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	return unmarshalProto(in.Config, &r.Config)
}

// MarshalJSON writes the record as it stands in record.json.
func (r ContainerRecord) MarshalJSON() ([]byte, error) {
	type plain ContainerRecord
	config, err := marshalProto(r.Config)
	if err != nil {
		return nil, err
	}
	r.Config = nil
	return json.Marshal(struct {
		plain
		Config json.RawMessage
	}{plain(r), config})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *ContainerRecord) UnmarshalJSON(data []byte) error {
	type plain ContainerRecord
	in := struct {
		*plain
		Config json.RawMessage
	}{plain: (*plain)(r)}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	return unmarshalProto(in.Config, &r.Config)
}

// MarshalJSON writes the status as it stands in status.json.
func (s ContainerStatus) MarshalJSON() ([]byte, error) {
	type plain ContainerStatus
	resources, err := marshalProto(s.Resources)
	if err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		plain
		Resources json.RawMessage `json:"resources,omitempty"`
	}{plain(s), resources})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *ContainerStatus) UnmarshalJSON(data []byte) error {
	type plain ContainerStatus
	in := struct {
		*plain
		Resources json.RawMessage `json:"resources"`
	}{plain: (*plain)(s)}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	return unmarshalProto(in.Resources, &s.Resources)
}

func marshalProto[M proto.Message](m M) (json.RawMessage, error) {
	if !m.ProtoReflect().IsValid() {
		return nil, nil
	}
	data, err := protojson.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode CRI message: %w", err)
	}
	return data, nil
}

// unmarshalProto ignores unknown fields: a newer podd may have written them.
func unmarshalProto[M proto.Message](data json.RawMessage, to *M) error {
	if len(data) == 0 || string(data) == "null" {
		return nil
	}
	m := (*to).ProtoReflect().New().Interface()
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, m); err != nil {
		return fmt.Errorf("decode CRI message: %w", err)
	}
	*to = m.(M)
	return nil
}
