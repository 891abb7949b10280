package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"

	"github.com/opencontainers/go-digest"
	"go.podman.io/storage"
)

// Storage has the signatures of an image in one item for each manifest under which it was pulled, and their sizes in
// the image's metadata, without which they are not found. A copy of a stored image replaces the sizes and the item of
// its manifest. The same image may come from several repositories, signed by others or not at all.

// maxKept bounds the signatures of an image, in bytes.
const maxKept = 1 << 20

// signatures are those of one image in storage, as the library encodes them, by the digest of the manifest.
type signatures map[digest.Digest][][]byte

// readSignatures returns none for an unknown image, or one without such metadata, and omits items of other sizes.
func readSignatures(from storage.Store, id string) (signatures, error) {
	img, err := from.Image(id)
	if errors.Is(err, storage.ErrImageUnknown) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var metadata struct {
		Sizes map[digest.Digest][]int `json:"signatures-sizes"` // the library's
	}
	if json.Unmarshal([]byte(img.Metadata), &metadata) != nil {
		return nil, nil
	}
	found := signatures{}
	for of, sizes := range metadata.Sizes {
		if of.Validate() != nil {
			continue
		}
		blob, err := StoredBlob(from, id, signatureKey(of))
		if err != nil {
			continue
		}
		if all, ok := split(blob, sizes); ok && len(all) > 0 {
			found[of] = all
		}
	}
	return found, nil
}

func signatureKey(of digest.Digest) string { return "signature-" + of.Encoded() }

// split returns the parts of a blob with these sizes, or false if it does not have them.
func split(blob []byte, sizes []int) (parts [][]byte, ok bool) {
	for _, size := range sizes {
		if size < 0 || size > len(blob) {
			return nil, false
		}
		parts, blob = append(parts, blob[:size]), blob[size:]
	}
	return parts, len(blob) == 0
}

// keepSignatures restores the signatures that an image had before it was copied again. It adds those of the copy only
// if a policy has verified them: others would take the place of those that a policy needs.
func (i *instance) keepSignatures(in storage.Store, before signatures, isVerified bool) error {
	now, err := readSignatures(in, i.id)
	if copied := digest.FromBytes(i.raw); copied != i.digest && now[copied] != nil {
		now[i.digest] = now[copied] // they sign the manifest as it was read
		delete(now, copied)
	}
	if err != nil || len(now)+len(before) == 0 {
		return err
	}
	kept := before
	if isVerified {
		kept = now.and(before)
	}
	return kept.write(in, i.id)
}

// and returns the signatures of both, or the others alone if there would be too many: a pull cannot remove those of
// earlier ones.
func (s signatures) and(others signatures) signatures {
	all, size := signatures{}, 0
	for of, more := range others {
		all[of] = slices.Clone(more)
		size += len(slices.Concat(more...))
	}
	for of, more := range s {
		for _, one := range more {
			if !slices.ContainsFunc(all[of], func(has []byte) bool { return bytes.Equal(has, one) }) {
				all[of] = append(all[of], one)
				size += len(one)
			}
		}
	}
	if size > maxKept {
		return others
	}
	return all
}

// write makes these the signatures of an image, except for those of its last copy, which the library finds elsewhere.
func (s signatures) write(to storage.Store, id string) error {
	img, err := to.Image(id)
	if err != nil {
		return err
	}
	fields, sizes := map[string]any{}, map[digest.Digest][]int{}
	if err := json.Unmarshal([]byte(img.Metadata), &fields); err != nil {
		return err
	}
	for of, all := range s {
		for _, one := range all {
			sizes[of] = append(sizes[of], len(one))
		}
		if err := to.SetImageBigData(id, signatureKey(of), slices.Concat(all...), nil); err != nil {
			return err
		}
	}
	fields["signatures-sizes"] = sizes
	metadata, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return to.SetMetadata(id, string(metadata))
}
