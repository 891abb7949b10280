package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/spec"
)

// maxBaseSpec bounds the file of a base_runtime_spec in bytes.
const maxBaseSpec = 1 << 20

// ReadBaseSpec reads a base_runtime_spec: a config.json, whose unknown fields are errors. Every error names the file.
// No path returns nil.
func ReadBaseSpec(path string) (*specs.Spec, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBaseSpec+1))
	if err == nil && len(data) > maxBaseSpec {
		err = fmt.Errorf("has more than %d bytes", maxBaseSpec)
	}
	base := &specs.Spec{}
	if err == nil {
		err = decodeStrict(data, base)
	}
	if err == nil {
		err = spec.CheckBase(base)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return base, nil
}

// decodeStrict reads one JSON value and refuses unknown fields.
func decodeStrict(data []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("has more than one JSON value")
	}
	return nil
}
