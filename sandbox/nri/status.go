package nri

import (
	"maps"
	"slices"
	"time"
)

// Status is the state of the plugins, for people and metrics.
type Status struct {
	Plugins []PluginStatus `json:"plugins"`
	// Calls are the calls since podd's start, by plugin, including those of disconnected plugins.
	Calls map[string][]Calls `json:"calls,omitempty"`
	// Down are the plugins of the plugin directory that do not run, with the reason.
	Down map[string]string `json:"down,omitempty"`
}

// PluginStatus is a plugin that is connected.
type PluginStatus struct {
	Name      string    `json:"name"`
	Pid       int       `json:"pid"`
	Launched  bool      `json:"launched"`
	Since     time.Time `json:"since"`
	Events    string    `json:"events"`
	OnFailure string    `json:"onFailure"`
	// Waiting is the number of calls in the queue.
	Waiting int `json:"waiting"`
	// Call is the call that the plugin has not answered yet, "" for none, and Age for how long.
	Call string        `json:"call,omitempty"`
	Age  time.Duration `json:"age,omitempty"`
}

// Status returns the present state. It waits for no plugin.
func (p *Plugins) Status() Status {
	p.mu.Lock()
	plugins, counters := p.plugins, maps.Clone(p.stats)
	down := map[string]string{}
	for name, one := range p.launches {
		if one.err != nil {
			down[name] = one.err.Error()
		}
	}
	p.mu.Unlock()
	s := Status{Calls: map[string][]Calls{}, Down: down}
	for _, one := range plugins {
		s.Plugins = append(s.Plugins, one.status())
	}
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		if calls := counters[name].list(); len(calls) > 0 {
			s.Calls[name] = calls
		}
	}
	return s
}

func (p *plugin) status() PluginStatus {
	s := PluginStatus{
		Name: p.name(), Pid: p.pid, Launched: p.launched, Since: p.since, Events: p.events.PrettyString(),
		OnFailure: continueOnFailure, Waiting: len(p.calls),
	}
	if p.refuse {
		s.OnFailure = refuseOnFailure
	}
	if c := p.current.Load(); c != nil {
		s.Call, s.Age = c.verb, time.Since(c.since)
	}
	return s
}
