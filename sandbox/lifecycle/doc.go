// Package lifecycle has the parts that the lives of pods and containers share: a name that only one of them has
// (Table), a creation that outlives its callers (Creation), a lifetime that bounds all work on it (Lifetime), the
// admission to that work (Gate, Slot, Stops, Work), and the events that report it (Bus). It knows no pod, container or
// record, and touches neither disk nor machine.
//
// The engine is its main caller; the server and the NRI plugins receive its events.
package lifecycle
