package nri

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/log"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/sandbox/record"
)

// maxPlugins bounds the plugins that are connected or connecting, and the names whose calls are counted.
const maxPlugins = 64

// Plugins are the plugins of the node. The zero value is not usable, see New.
type Plugins struct {
	cfg     Config
	version string
	log     logrus.FieldLogger
	// work is what Run waits for: connections, their calls, and programs. Updates and evictions are not part of it: they
	// wait for containers.
	work sync.WaitGroup

	mu sync.Mutex // guards the rest; it is not held during a call of a plugin or of the engine
	// engine is nil until Run.
	engine Engine
	// pods and containers are those that plugins know of, by id. Both they and the receivers of an event are chosen
	// with the lock held, so that a plugin that joins misses no event and gets none twice.
	pods, containers map[string]*object
	// plugins are those that have joined, in the order in which they are asked.
	plugins []*plugin
	// connections counts the plugins that have connected, joined or not.
	connections int
	stats       map[string]*stats
	launches    map[string]*launch
	// evictions are waiting, and evictors are at work on others.
	evictions []eviction
	evictors  int
}

// object is a pod or container that plugins know of.
type object struct {
	// stopped is true once its stop was reported.
	stopped bool
	// creating is true until a container is created and the postponed updates of it have been made.
	creating  bool
	postponed []Resources
	// evicting is true while a plugin's eviction of the container waits or is under way.
	evicting bool
	// message describes a container; nil until a plugin needs it.
	message *api.Container
}

// setUpLibrary sets the library's logger and timeout, of which there is one per process.
var setUpLibrary = sync.OnceFunc(func() {
	adaptation.SetPluginRequestTimeout(neverTimeout)
	log.Set(libraryLog{})
})

// New returns Plugins without any, which does nothing until Run. Version is podd's, for plugins.
func New(cfg Config, version string, logger logrus.FieldLogger) *Plugins {
	setUpLibrary()
	return &Plugins{
		cfg: cfg, version: version, log: logger, pods: map[string]*object{}, containers: map[string]*object{},
		stats: map[string]*stats{}, launches: map[string]*launch{},
	}
}

// libraryLog drops the library's messages: it logs each merge as the start of a runtime.
type libraryLog struct{}

func (libraryLog) Debugf(context.Context, string, ...any) {}
func (libraryLog) Infof(context.Context, string, ...any)  {}
func (libraryLog) Warnf(context.Context, string, ...any)  {}
func (libraryLog) Errorf(context.Context, string, ...any) {}

// joined returns the plugins in the order in which they are asked.
func (p *Plugins) joined() []*plugin {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.plugins
}

// announcePod makes p known and returns the plugins to tell.
func (p *Plugins) announcePod(id string) []*plugin {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods[id] = &object{}
	return p.plugins
}

// announceContainer is announcePod for a container.
func (p *Plugins) announceContainer(id string) []*plugin {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.containers[id] = &object{creating: true}
	return p.plugins
}

// describe keeps the description of a container for its events, while there are plugins to tell.
func (p *Plugins) describe(id string, msg *api.Container) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.containers[id]; o != nil && len(p.plugins) > 0 {
		o.message = msg
	}
}

// description returns what describes c, apart from its status. It reads config.json if no plugin has needed it before.
func (p *Plugins) description(c record.ContainerView) *api.Container {
	p.mu.Lock()
	var msg *api.Container
	if o := p.containers[c.ID]; o != nil {
		msg = o.message
	}
	engine := p.engine
	p.mu.Unlock()
	if msg != nil {
		return msg
	}
	s, err := engine.Spec(c.ID)
	if err != nil {
		return p.bounded(c, containerMessage(c, nil)) // its bundle is gone
	}
	msg = p.bounded(c, containerMessage(c, s))
	p.describe(c.ID, msg)
	return msg
}

// join adds a plugin that is configured, unless it has disconnected: leave may have been called already. Its first call
// is its synchronisation with the pods and containers known at this moment; all later events follow in its queue.
func (p *Plugins) join(one *plugin) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one.isClosed() {
		return fmt.Errorf("NRI plugin %s has disconnected before it joined: %w", one.name(), one.reason)
	}
	pods, containers := maps.Clone(p.pods), maps.Clone(p.containers)
	one.post("Synchronize", func(ctx context.Context) error { return p.synchronize(ctx, one, pods, containers) })
	list := append(slices.Clone(p.plugins), one)
	slices.SortStableFunc(list, func(a, b *plugin) int { return cmp.Compare(a.index, b.index) })
	p.plugins = list
	p.work.Go(one.work)
	go one.workUpdates()
	return nil
}

// leave removes a plugin that was closed.
func (p *Plugins) leave(one *plugin) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plugins = slices.DeleteFunc(slices.Clone(p.plugins), func(other *plugin) bool { return other == one })
	if len(p.plugins) == 0 { // the descriptions are for plugins only
		for _, o := range p.containers {
			o.message = nil
		}
	}
}

// statsOf returns the counters of the plugins of a name.
func (p *Plugins) statsOf(name string) *stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.stats[name]; s != nil {
		return s
	}
	if len(p.stats) >= maxPlugins {
		name = "other"
	}
	if p.stats[name] == nil {
		p.stats[name] = &stats{}
	}
	return p.stats[name]
}
