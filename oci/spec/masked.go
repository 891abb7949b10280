package spec

import "path"

// maskedPaths sets the lists as sent. The kubelet sends the default ones, and empty ones for an unmasked procMount, so
// podd has no default of its own. Privileged containers have none.
func (b *builder) maskedPaths() error {
	if b.privileged {
		return nil
	}
	masked, readonly := b.sc.GetMaskedPaths(), b.sc.GetReadonlyPaths()
	for _, p := range join(masked, readonly) {
		if err := absolute("path to mask", p); err != nil {
			return err
		}
	}
	b.spec.Linux.MaskedPaths, b.spec.Linux.ReadonlyPaths = clone(masked), clone(readonly)
	return nil
}

func absolute(what, p string) error {
	if !path.IsAbs(p) {
		return invalid("%s: %q is not an absolute path", what, p)
	}
	return checkText(what, p)
}
