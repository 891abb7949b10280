// Package criu reads and changes images of CRIU: the files and privileges that a container's processes would get,
// before they are restored. CRIU gives a process the credentials that its image has, whatever config.json says, so they
// are compared with config.json here. It starts nothing; package runc calls it.
package criu

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
)

// An image is two magic numbers, the first of which all of these images share, and messages of protobuf, each behind
// its length (https://criu.org/Images, criu/include/magic.h).
const (
	magic      = 0x54564319
	magicSize  = 8
	lengthSize = 4
	// maxImage bounds an image that is read here, in bytes: they describe one thread or one namespace.
	maxImage = 1 << 20
)

// errImage is the error of an image that CRIU did not write.
var errImage = fmt.Errorf("%w: not an image of CRIU", errdefs.ErrFailedPrecondition)

// readImage returns the magic numbers and the messages of an image.
func readImage(path string) (header []byte, messages [][]byte, err error) {
	data, err := readSmall(path)
	if err != nil {
		return nil, nil, err
	}
	if len(data) < magicSize || binary.LittleEndian.Uint32(data) != magic {
		return nil, nil, fmt.Errorf("%s: %w", filepath.Base(path), errImage)
	}
	for rest := data[magicSize:]; len(rest) > 0; {
		if len(rest) < lengthSize {
			return nil, nil, fmt.Errorf("%s: %w", filepath.Base(path), errImage)
		}
		n := uint64(binary.LittleEndian.Uint32(rest))
		if rest = rest[lengthSize:]; n > uint64(len(rest)) {
			return nil, nil, fmt.Errorf("%s: %w", filepath.Base(path), errImage)
		}
		messages, rest = append(messages, rest[:n]), rest[n:]
	}
	return data[:magicSize], messages, nil
}

func readSmall(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxImage+1))
	if err == nil && len(data) > maxImage {
		err = fmt.Errorf("%w: %s has more than %d bytes", errdefs.ErrFailedPrecondition, filepath.Base(path), maxImage)
	}
	return data, err
}

// fields calls f for each field of a message: with its number if it is a varint, with its bytes otherwise.
func fields(message []byte, f func(number protowire.Number, value uint64, data []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errImage
		}
		message = message[n:]
		var value uint64
		var data []byte
		switch kind {
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return errImage
		}
		message = message[n:]
		if err := f(number, value, data); err != nil {
			return err
		}
	}
	return nil
}

// The fields of utsns_entry (images/utsns.proto).
const (
	utsNodename   protowire.Number = 1
	utsDomainname protowire.Number = 2
)

// SetHostname changes the host name that the images in dir restore: CRIU sets it in the UTS namespace that the
// container joins, which is that of another pod.
func SetHostname(dir, hostname string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "utsns-*.img"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		header, messages, err := readImage(path)
		if err != nil {
			return err
		}
		if len(messages) != 1 {
			return fmt.Errorf("%s: %w", filepath.Base(path), errImage)
		}
		changed := protowire.AppendTag(nil, utsNodename, protowire.BytesType)
		changed = protowire.AppendString(changed, hostname)
		err = fields(messages[0], func(number protowire.Number, _ uint64, data []byte) error {
			if number == utsDomainname {
				changed = protowire.AppendTag(changed, utsDomainname, protowire.BytesType)
				changed = protowire.AppendBytes(changed, data)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
		data := binary.LittleEndian.AppendUint32(header[:magicSize:magicSize], uint32(len(changed)))
		if err := os.WriteFile(path, append(data, changed...), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// HasIPC reports whether the images in dir have shared memory, semaphores or message queues of System V.
func HasIPC(dir string) (bool, error) {
	for _, kind := range []string{"shm", "sem", "msg"} {
		paths, err := filepath.Glob(filepath.Join(dir, "ipcns-"+kind+"-*.img"))
		if err != nil {
			return false, err
		}
		for _, path := range paths {
			if info, err := os.Stat(path); err != nil || info.Size() > magicSize {
				return true, err
			}
		}
	}
	return false, nil
}

// checkDescriptors refuses a list of standard input, output and error that has more: the
// runtime passes the descriptors of that number to CRIU, of which later ones are its own.
func checkDescriptors(dir string) error {
	data, err := readSmall(filepath.Join(dir, "descriptors.json"))
	if err != nil {
		return err
	}
	var names []string
	if err := json.Unmarshal(data, &names); err != nil {
		return errors.Join(fmt.Errorf("descriptors.json: %w", errImage), err)
	}
	if len(names) > 3 {
		return fmt.Errorf("%w: descriptors.json has %d descriptors, want at most 3", errdefs.ErrPermissionDenied, len(names))
	}
	return nil
}
