package nri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/adaptation/builtin"
	"github.com/containerd/nri/pkg/api"
	validator "github.com/containerd/nri/plugins/default-validator/builtin"
	"google.golang.org/protobuf/proto"
)

// The library merges the answers of plugins in adaptation.Adaptation, which holds its lock during all calls. So each
// request gets its own Adaptation, whose plugins are functions that call the real ones: its merging, its rules for
// conflicts and its validation are used, and its lock is not shared with other requests.

// neverTimeout is the library's timeout for a plugin's function, which has its own, shorter limits.
const neverTimeout = time.Hour

// merge is one request to several plugins.
type merge struct {
	mu sync.Mutex // guards the rest: validators are called concurrently
	// owners says which plugin changed what, by container id.
	owners *api.OwningPlugins
	// evict are the containers that plugins want to be stopped.
	evict []*api.ContainerEviction
	// removed are the names of variables and the paths of devices that plugins remove: the library drops removals of
	// the container's own entries.
	removedEnv, removedDevices []string
	// err is the first error of a plugin.
	err error
	// turn is nil if no plugin asks for updates of containers. It is ended once.
	turn  *turn
	ended bool
}

// opaque keeps err for the caller and returns one with its text. The library would take an error that wraps a timeout
// or a lost connection for an error of its transport, apply the plugin's policy to it, and proceed.
func (m *merge) opaque(err error) error {
	if err == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
	}
	return errors.New(err.Error())
}

// refusal returns the error to refuse the request with: the first plugin's, else the library's as
// ErrFailedPrecondition.
func (m *merge) refusal(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	return fmt.Errorf("%w: NRI plugins: %w", errdefs.ErrFailedPrecondition, err)
}

func (m *merge) addEvictions(list []*api.ContainerEviction) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.evict = append(m.evict, list...)
}

// adaptation returns a started Adaptation of the plugins.
func (m *merge) adaptation(p *Plugins, plugins []*plugin) (*adaptation.Adaptation, error) {
	functions := []*builtin.BuiltinPlugin{{
		Base: "podd", Index: "99",
		Handlers: builtin.BuiltinHandlers{ValidateContainerAdjustment: m.noteOwners},
	}}
	for _, one := range plugins {
		functions = append(functions, m.function(one))
	}
	sync := func(context.Context, adaptation.SyncCB) error { return nil }
	update := func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil }
	a, err := adaptation.New("podd", p.version, sync, update,
		adaptation.WithDisabledExternalConnections(), adaptation.WithPluginPath(""),
		adaptation.WithBuiltinPlugins(functions...), adaptation.WithDefaultValidator(p.cfg.Validator.library()))
	if err == nil {
		err = a.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("merge the answers of NRI plugins: %w", err)
	}
	return a, nil
}

func (m *merge) noteOwners(_ context.Context, r *api.ValidateContainerAdjustmentRequest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owners = r.GetOwners()
	return nil
}

// function is the plugin as the library calls it. It gets copies of requests: the library changes them for the next
// plugin, while a slow plugin may still be reading this one.
func (m *merge) function(p *plugin) *builtin.BuiltinPlugin {
	return &builtin.BuiltinPlugin{Base: p.base, Index: p.index, Handlers: builtin.BuiltinHandlers{
		CreateContainer: func(ctx context.Context, r *api.CreateContainerRequest) (*api.CreateContainerResponse, error) {
			reply, err := ask(ctx, p, api.Event_CREATE_CONTAINER, proto.CloneOf(r), inTurn(m, p, p.service.CreateContainer))
			m.addEvictions(reply.GetEvict())
			m.noteRemovals(reply.GetAdjust())
			return reply, m.opaque(checkAnswer(p, reply, err))
		},
		UpdateContainer: func(ctx context.Context, r *api.UpdateContainerRequest) (*api.UpdateContainerResponse, error) {
			reply, err := ask(ctx, p, api.Event_UPDATE_CONTAINER, proto.CloneOf(r), inTurn(m, p, p.service.UpdateContainer))
			m.addEvictions(reply.GetEvict())
			return reply, m.opaque(checkAnswer(p, reply, err))
		},
		ValidateContainerAdjustment: func(ctx context.Context, r *api.ValidateContainerAdjustmentRequest) error {
			reply, err := ask(ctx, p, api.Event_VALIDATE_CONTAINER_ADJUSTMENT, proto.CloneOf(r),
				p.service.ValidateContainerAdjustment)
			if err != nil || reply == nil {
				return m.opaque(err)
			}
			return reply.ValidationResult(p.name())
		},
	}}
}

// checkAnswer returns err, or why the answer cannot be merged.
func checkAnswer(p *plugin, answer proto.Message, err error) error {
	if err != nil {
		return err
	}
	if err := checkFields(answer); err != nil {
		return fmt.Errorf("answer of NRI plugin %s: %w", p.name(), err)
	}
	return nil
}

// inTurn returns method, whose answer takes the turn of the request.
func inTurn[Q any, A interface {
	GetUpdate() []*api.ContainerUpdate
}](m *merge, p *plugin, method func(context.Context, Q) (A, error)) func(context.Context, Q) (A, error) {
	return func(ctx context.Context, request Q) (A, error) {
		answer, err := method(ctx, request)
		if err == nil {
			m.reserve(p, answer.GetUpdate())
		}
		return answer, err
	}
}

func (m *merge) noteRemovals(a *api.ContainerAdjustment) {
	for _, kv := range a.GetEnv() {
		if name, remove := kv.IsMarkedForRemoval(); remove {
			m.removedEnv = append(m.removedEnv, name)
		}
	}
	for _, d := range a.GetLinux().GetDevices() {
		if path, remove := d.IsMarkedForRemoval(); remove {
			m.removedDevices = append(m.removedDevices, path)
		}
	}
}

// complete returns the combined adjustment: the library's result without empty parts, and with the removals.
func (m *merge) complete(a *api.ContainerAdjustment) *api.ContainerAdjustment {
	if a = a.Strip(); a == nil {
		a = &api.ContainerAdjustment{}
	}
	for _, name := range m.removedEnv {
		if !slices.ContainsFunc(a.Env, func(kv *api.KeyValue) bool { return kv.GetKey() == name }) {
			a.RemoveEnv(name)
		}
	}
	for _, path := range m.removedDevices {
		if !slices.ContainsFunc(a.GetLinux().GetDevices(), func(d *api.LinuxDevice) bool { return d.GetPath() == path }) {
			a.RemoveDevice(path)
		}
	}
	return a
}

// fieldsOf returns the names of the container's fields that each plugin owns.
func fieldsOf(owners *api.OwningPlugins, id string) map[string][]string {
	fields := map[string][]string{}
	add := func(plugin string, field int32) {
		name := api.Field(field).String()
		if !slices.Contains(fields[plugin], name) {
			fields[plugin] = append(fields[plugin], name)
		}
	}
	of := owners.GetOwners()[id]
	for field, plugin := range of.GetSimple() {
		add(plugin, field)
	}
	for field, keys := range of.GetCompound() {
		for _, plugin := range keys.GetOwners() {
			add(plugin, field)
		}
	}
	if len(fields) == 0 {
		return nil
	}
	for _, names := range fields {
		slices.Sort(names)
	}
	return fields
}

// library returns the configuration as the library's validator takes it.
func (v Validator) library() *validator.DefaultValidatorConfig {
	return &validator.DefaultValidatorConfig{
		Enable:                                v.Enable,
		RejectOCIHookAdjustment:               v.RejectOCIHookAdjustment,
		RejectRuntimeDefaultSeccompAdjustment: v.RejectRuntimeDefaultSeccompAdjustment,
		RejectUnconfinedSeccompAdjustment:     v.RejectUnconfinedSeccompAdjustment,
		RejectCustomSeccompAdjustment:         v.RejectCustomSeccompAdjustment,
		RejectNamespaceAdjustment:             v.RejectNamespaceAdjustment,
		RejectSysctlAdjustment:                v.RejectSysctlAdjustment,
		RequiredPlugins:                       v.RequiredPlugins,
		TolerateMissingAnnotation:             v.TolerateMissingAnnotation,
	}
}
