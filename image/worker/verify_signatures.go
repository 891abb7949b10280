package worker

import (
	"context"
	"errors"
	"fmt"

	containersimage "go.podman.io/image/v5/image"

	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/signature"
	containersstorage "go.podman.io/image/v5/storage"
)

// verifyStored applies the signature policy to a stored image with its stored signatures, in a pull's process. It
// returns the errors of all names if none is accepted.
func (w *worker) verifyStored(ctx context.Context, id string, names []string) error {
	policy, err := w.cfg.PolicyContext()
	if err != nil {
		return err
	}
	defer func() { _ = policy.Destroy() }() // frees memory
	ref, err := containersstorage.Transport.NewStoreReference(w.storage, nil, id)
	if err != nil {
		return err
	}
	source, err := ref.NewImageSource(ctx, w.systemContext())
	if err != nil {
		return err
	}
	defer source.Close()
	signed, err := readSignatures(w.storage, id)
	if err != nil {
		return err
	}
	contents := []*containersimage.UnparsedImage{containersimage.UnparsedInstance(source, nil)} // the last pull's
	for of := range signed {
		contents = append(contents, containersimage.UnparsedInstance(source, &of))
	}
	errs := []error{signature.PolicyRequirementError("no name of the image is accepted")}
	for _, text := range names {
		name, err := reference.ParseNamed(text)
		if err != nil {
			return err
		}
		remote, err := docker.NewReference(name)
		if err != nil {
			return err
		}
		for _, content := range contents {
			named := containersimage.UnparsedInstanceWithReference(content, remote)
			if accepted, err := policy.IsRunningImageAllowed(ctx, named); accepted {
				return nil
			} else {
				errs = append(errs, fmt.Errorf("%s: %w", text, err))
			}
		}
	}
	return errors.Join(errs...)
}
