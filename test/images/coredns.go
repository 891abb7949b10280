package images

import (
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// AddCoreDNS adds an image of CoreDNS, by the name that kubeadm gives it and the tag podd. program is static. As in the
// published image it runs as a user without privileges.
func (r *Registry) AddCoreDNS(program string) error {
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	t := tree{}
	t.file("coredns", 0o755, data)
	l, err := t.layer()
	if err != nil {
		return err
	}
	img, err := image(v1.Config{Entrypoint: []string{"/coredns"}, User: "65532:65532", WorkingDir: "/"}, l)
	if err != nil {
		return err
	}
	return r.push(img, "coredns/coredns:podd")
}
