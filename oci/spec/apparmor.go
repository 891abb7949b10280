package spec

import (
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// AppArmorRequest returns the AppArmor profile that a security context requests: profile, or the one that the
// deprecated field names if profile is nil. Nil means the runtime's default where AppArmor is on. The name of a
// Localhost profile is returned without the prefix "localhost/" that some clients send.
func AppArmorRequest(profile *cri.SecurityProfile, deprecated string) (*cri.SecurityProfile, error) {
	switch {
	case profile != nil && profile.GetProfileType() != cri.SecurityProfile_Localhost:
		return profile, nil
	case profile != nil:
		return localAppArmor(profile.GetLocalhostRef())
	case deprecated == "":
		return nil, nil
	case deprecated == "runtime/default":
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}, nil
	case deprecated == "unconfined":
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}, nil
	case strings.HasPrefix(deprecated, localhostPrefix):
		return localAppArmor(deprecated)
	}
	return nil, invalid("unknown AppArmor profile %q", deprecated)
}

// localAppArmor refuses "unconfined", which is not a profile: runtimes read it as "no profile". The Pod Security
// Standards of Kubernetes forbid that, and allow every Localhost profile.
func localAppArmor(ref string) (*cri.SecurityProfile, error) {
	name := strings.TrimPrefix(ref, localhostPrefix)
	switch {
	case name == "", name == "unconfined", strings.ContainsAny(name, "\n\x00"):
		return nil, invalid("%q is not the name of an AppArmor profile", ref)
	}
	return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: name}, nil
}

// apparmor sets the profile. A profile requested by name is enforced, or an error, for privileged containers too. The
// default profile is not applied to privileged containers, nor on a machine without AppArmor.
func (b *builder) apparmor() error {
	//lint:ignore SA1019 old kubelets set it
	p, err := AppArmorRequest(b.sc.GetApparmor(), b.sc.GetApparmorProfile())
	if err != nil {
		return err
	}
	on := b.in.Host.AppArmor
	switch p.GetProfileType() {
	case cri.SecurityProfile_Unconfined:
		if on {
			b.spec.Process.ApparmorProfile = "unconfined"
		}
	case cri.SecurityProfile_Localhost:
		if !on {
			return unsupported("the profile %q is requested, AppArmor is off on this machine", p.GetLocalhostRef())
		}
		b.spec.Process.ApparmorProfile = p.GetLocalhostRef()
	case cri.SecurityProfile_RuntimeDefault: // of a nil profile, too
		return b.defaultAppArmor(p != nil)
	default:
		return invalid("unknown profile type %v", p.GetProfileType())
	}
	return nil
}

func (b *builder) defaultAppArmor(asked bool) error {
	f := b.in.Host
	switch {
	case !f.AppArmor || b.privileged:
		return nil
	case f.DefaultAppArmor != "":
		b.spec.Process.ApparmorProfile = f.DefaultAppArmor
		return nil
	case asked:
		return unsupported("podd's default profile is requested and is not loaded")
	}
	b.warn("AppArmor: podd's default profile is not loaded, the container runs without it")
	return nil
}
