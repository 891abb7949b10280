package checkpoint

import (
	"crypto/rand"
	"encoding/hex"
)

// markBytes is the length of a mark: that of another state directory is the same by chance only.
const markBytes = 8

// mark is the content of the file "mark" in a state directory.
type mark struct {
	Mark string `json:"mark"`
}

// Mark returns the mark of the state directory whose file is path: 16 random hexadecimal digits. It makes a file that
// is missing, damaged or not known to it. The ids of the directory's pods end with the mark, so that an id is known to
// be of this directory when its record is lost.
func Mark(path string) (string, error) {
	var have mark
	err := Read(path, 1, &have)
	if raw, bad := hex.DecodeString(have.Mark); err == nil && bad == nil && len(raw) == markBytes {
		return have.Mark, nil
	}
	if err != nil && !IsPermanent(err) {
		return "", err
	}
	var b [markBytes]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	have.Mark = hex.EncodeToString(b[:])
	return have.Mark, Write(path, 1, have)
}
