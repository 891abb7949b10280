package nri

import (
	"context"

	"github.com/containerd/nri/pkg/api"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/sandbox/record"
)

// Creation is a container whose config.json plugins may adjust.
type Creation struct {
	Container record.ContainerView
	// Spec becomes config.json. It is changed in place.
	Spec *specs.Spec
	// Handler and Facts are the features of the runtime handler and of the machine.
	Handler spec.Handler
	Facts   spec.Facts
	// InjectCDI adds devices of the Container Device Interface by their qualified names.
	InjectCDI func(s *specs.Spec, devices []string) error
	// BlockIO returns the weights and limits of a class.
	BlockIO func(class string) (*specs.LinuxBlockIO, error)
}

// Adjustment is what plugins changed of a container that is created.
type Adjustment struct {
	// Fields are the names of the changed fields, by plugin.
	Fields map[string][]string
	// Resources are the limits that plugins set, without those that the CRI has no field for; nil if there are none.
	Resources *cri.LinuxContainerResources
}

// Resources are limits to set. Fields that are zero in both forms stay as they are.
type Resources struct {
	// CRI are the limits that the CRI has a field for.
	CRI *cri.LinuxContainerResources
	// Rest has those that the CRI has no field for, nil for none.
	Rest *api.LinuxResources
}

// Engine is what requests of plugins need of the engine. Plugins never calls it with a lock held.
type Engine interface {
	// Existing returns the pods that are ready or being created, and the containers that have not exited.
	Existing() ([]record.PodView, []record.ContainerView)
	// Spec returns the config.json of a container.
	Spec(id string) (*specs.Spec, error)
	// Update sets limits of a container, as UpdateContainerResources does. Plugins are not asked again.
	Update(ctx context.Context, id string, r Resources) error
	// Evict stops a container.
	Evict(ctx context.Context, id, reason string) error
}
