package record

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/checkpoint"
)

// message is a CRI message in protobuf's JSON form: cri.KeyValue's own JSON form replaces bytes that are not UTF-8.
type message[M proto.Message] struct{ m M }

// IsZero reports whether there is no message, for omitzero.
func (m message[M]) IsZero() bool { return !m.m.ProtoReflect().IsValid() }

// MarshalJSON writes null when there is no message.
func (m message[M]) MarshalJSON() ([]byte, error) {
	if m.IsZero() {
		return []byte("null"), nil
	}
	data, err := protojson.Marshal(m.m)
	if err != nil {
		return nil, fmt.Errorf("encode CRI message: %w", err)
	}
	return data, nil
}

// UnmarshalJSON ignores unknown fields: a newer podd may have written them.
func (m *message[M]) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	in := m.m.ProtoReflect().New().Interface()
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, in); err != nil {
		return fmt.Errorf("decode CRI message: %w", err)
	}
	m.m = in.(M)
	return nil
}

// The types below have the fields of a record without its methods, and the CRI message as the last key.
type (
	plainPod       Pod
	plainPodStatus PodStatus
	plainContainer Container
	plainStatus    ContainerStatus

	podJSON struct {
		*plainPod
		Config message[*cri.PodSandboxConfig]
	}
	podStatusJSON struct {
		*plainPodStatus
		Limits message[*cri.LinuxPodSandboxConfig] `json:"limits,omitzero"`
	}
	containerJSON struct {
		*plainContainer
		Config message[*cri.ContainerConfig]
	}
	containerStatusJSON struct {
		*plainStatus
		Resources message[*cri.LinuxContainerResources] `json:"resources,omitzero"`
	}
)

// MarshalJSON returns the content of record.json.
func (p Pod) MarshalJSON() ([]byte, error) {
	return checkpoint.PlainJSON(podJSON{(*plainPod)(&p), message[*cri.PodSandboxConfig]{p.Config}}, "")
}

// UnmarshalJSON parses the content of record.json.
func (p *Pod) UnmarshalJSON(data []byte) error {
	in := podJSON{plainPod: (*plainPod)(p)}
	err := json.Unmarshal(data, &in)
	p.Config = in.Config.m
	return err
}

// MarshalJSON returns the content of status.json.
func (s PodStatus) MarshalJSON() ([]byte, error) {
	status := podStatusJSON{(*plainPodStatus)(&s), message[*cri.LinuxPodSandboxConfig]{s.Limits}}
	return checkpoint.PlainJSON(status, "")
}

// UnmarshalJSON parses the content of status.json.
func (s *PodStatus) UnmarshalJSON(data []byte) error {
	in := podStatusJSON{plainPodStatus: (*plainPodStatus)(s)}
	err := json.Unmarshal(data, &in)
	s.Limits = in.Limits.m
	return err
}

// MarshalJSON returns the content of record.json.
func (c Container) MarshalJSON() ([]byte, error) {
	return checkpoint.PlainJSON(containerJSON{(*plainContainer)(&c), message[*cri.ContainerConfig]{c.Config}}, "")
}

// UnmarshalJSON parses the content of record.json.
func (c *Container) UnmarshalJSON(data []byte) error {
	in := containerJSON{plainContainer: (*plainContainer)(c)}
	err := json.Unmarshal(data, &in)
	c.Config = in.Config.m
	return err
}

// MarshalJSON returns the content of status.json.
func (s ContainerStatus) MarshalJSON() ([]byte, error) {
	status := containerStatusJSON{(*plainStatus)(&s), message[*cri.LinuxContainerResources]{s.Resources}}
	return checkpoint.PlainJSON(status, "")
}

// UnmarshalJSON parses the content of status.json.
func (s *ContainerStatus) UnmarshalJSON(data []byte) error {
	in := containerStatusJSON{plainStatus: (*plainStatus)(s)}
	err := json.Unmarshal(data, &in)
	s.Resources = in.Resources.m
	return err
}
