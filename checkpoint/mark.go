package checkpoint

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
)

// markBytes is the length of a mark: that of another state directory is the same by chance only.
const markBytes = 8

// mark is the content of the file "mark" in a state directory. Path is that of the file: a copy of the directory gets a
// mark of its own.
type mark struct {
	Mark string `json:"mark"`
	Path string `json:"path"`
}

// Mark returns the mark of the state directory whose file is path: 16 random hexadecimal digits. It makes a file that
// is missing, damaged, or copied from elsewhere. The ids of the directory's pods end with the mark, so that an id is
// known to be of this directory when its record is lost. One that a newer podd has written is ErrNewer.
func Mark(path string) (string, error) {
	var have mark
	err := Read(path, 1, &have)
	if err == nil && have.Path == path && isMark(have.Mark) {
		return have.Mark, nil
	}
	if err != nil && (!IsPermanent(err) || errors.Is(err, ErrNewer)) {
		return "", err
	}
	var b [markBytes]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	have = mark{Mark: hex.EncodeToString(b[:]), Path: path}
	return have.Mark, Write(path, 1, have)
}

func isMark(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == markBytes && hex.EncodeToString(b) == s
}
