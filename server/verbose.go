package server

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// verbose returns the info map of a verbose response. Clients such as crictl read the key "info".
func verbose(info map[string]any) (map[string]string, error) {
	text, err := json.Marshal(info)
	if err != nil {
		return nil, fmt.Errorf("marshal verbose response: %w", err)
	}
	return map[string]string{"info": string(text)}, nil
}

// message returns a CRI message as JSON, for use within other JSON.
func message(m proto.Message) json.RawMessage {
	text, err := protojson.Marshal(m)
	if err != nil { // invalid UTF-8, which validation excludes
		return json.RawMessage("null")
	}
	return text
}
