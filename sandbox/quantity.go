package sandbox

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// parseQuantity reads a Kubernetes quantity ("10M", "1Gi") that is a whole number and not negative.
func parseQuantity(text string) (uint64, error) {
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
