package server

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// verbose makes the info map of a verbose answer: crictl and others look under "info".
func verbose(info map[string]any) (map[string]string, error) {
	text, err := json.Marshal(info)
	if err != nil {
		return nil, fmt.Errorf("make verbose answer: %w", err)
	}
	return map[string]string{"info": string(text)}, nil
}

// message is a CRI message as JSON inside of other JSON.
func message(m proto.Message) json.RawMessage {
	text, err := protojson.Marshal(m)
	if err != nil { // invalid UTF-8, which validation keeps out
		return json.RawMessage("null")
	}
	return text
}
