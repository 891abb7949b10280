package convert

import (
	"errors"
	"fmt"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/podd-project/podd/network"
)

// The annotations of Kubernetes for rate limits of the network.
const (
	ingressAnnotation = "kubernetes.io/ingress-bandwidth"
	egressAnnotation  = "kubernetes.io/egress-bandwidth"
)

// PortMappings returns the ports with a host port; the others are only documentation.
func PortMappings(in []*cri.PortMapping) []network.PortMapping {
	protocols := map[cri.Protocol]string{cri.Protocol_TCP: "tcp", cri.Protocol_UDP: "udp", cri.Protocol_SCTP: "sctp"}
	var out []network.PortMapping
	for _, m := range in {
		if m.GetHostPort() > 0 {
			out = append(out, network.PortMapping{
				HostPort: m.GetHostPort(), ContainerPort: m.GetContainerPort(),
				Protocol: protocols[m.GetProtocol()], HostIP: m.GetHostIp(),
			})
		}
	}
	return out
}

// Bandwidth returns the rate limits of a pod's annotations, nil for none.
func Bandwidth(annotations map[string]string) (*network.Bandwidth, error) {
	ingress, err := bitRate(annotations, ingressAnnotation)
	if err != nil {
		return nil, err
	}
	egress, err := bitRate(annotations, egressAnnotation)
	if err != nil {
		return nil, err
	}
	if ingress == 0 && egress == 0 {
		return nil, nil
	}
	return &network.Bandwidth{Ingress: ingress, Egress: egress}, nil
}

// The kubelet's own bounds for a bandwidth annotation, in bits per second.
const minRate, maxRate = 1000, 1_000_000_000_000_000

func bitRate(annotations map[string]string, key string) (uint64, error) {
	text, ok := annotations[key]
	if !ok {
		return 0, nil
	}
	rate, err := parseQuantity(text)
	if err != nil || rate < minRate || rate > maxRate {
		return 0, fmt.Errorf("%w: annotation %s: %.80q is not a bit rate between 1k and 1P",
			errdefs.ErrInvalidArgument, key, text)
	}
	return rate, nil
}

// Limits of the lengths of a quantity and of its exponent: apimachinery computes for minutes on 1e-99999999.
const (
	maxQuantity = 100
	maxExponent = len("e-99")
)

// parseQuantity reads a Kubernetes quantity ("10M", "1Gi") that is a whole number and not negative.
func parseQuantity(text string) (uint64, error) {
	if e := strings.IndexAny(text, "eE"); len(text) > maxQuantity || e >= 0 && len(text)-e > maxExponent {
		return 0, errors.New("too long")
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, err
	}
	n := q.Value()
	if n < 0 {
		return 0, fmt.Errorf("%q is negative", text)
	}
	return uint64(n), nil
}
