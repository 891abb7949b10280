package usage

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
	"unicode/utf8"
)

// podInterface is the name that CNI is asked to give the pod's interface (package network does).
const podInterface = "eth0"

// Network is the traffic of a pod's interfaces since each was created.
type Network struct {
	At time.Time
	// Default is the interface of the pod's address, nil when there is none yet.
	Default *Interface
	// Others are all but Default and the loopback interface.
	Others []Interface
}

// Interface is the traffic of one network interface.
type Interface struct {
	Name                                    string
	RxBytes, RxPackets, RxErrors, RxDropped uint64
	TxBytes, TxPackets, TxErrors, TxDropped uint64
}

// networkGauge reads a network namespace's counters from a file that stays open.
type networkGauge struct {
	open func() (*os.File, error)
	file *os.File
}

func (g *networkGauge) due(last *Network, _ Want) bool {
	return time.Since(last.At) >= Freshness
}

func (g *networkGauge) patience() time.Duration { return FirstPatience }

func (g *networkGauge) close() {
	if g.file != nil {
		g.file.Close()
		g.file = nil
	}
}

func (g *networkGauge) measure(*Network, Want) (*Network, error) {
	if g.file == nil {
		f, err := g.open()
		if err != nil {
			return nil, err
		}
		g.file = f
	}
	u := &Network{At: time.Now()}
	text, err := io.ReadAll(io.NewSectionReader(g.file, 0, maxNetDev))
	if err != nil {
		g.close()
		return nil, fmt.Errorf("interfaces: %w", err)
	}
	u.parse(text)
	return u, nil
}

// maxNetDev is how many bytes of an interface list are read: a privileged container can make interfaces.
const maxNetDev = 1 << 20

// parse reads /proc/net/dev: two lines of headings, and then for each interface "name: " and 16 numbers, 8 received
// and 8 sent: bytes packets errs drop fifo frame compressed multicast; ... colls carrier compressed.
func (u *Network) parse(text []byte) {
	for line := range bytes.Lines(text) {
		name, counters, ok := bytes.Cut(line, []byte(":"))
		fields := bytes.Fields(counters)
		if !ok || len(fields) < 12 {
			continue
		}
		i := Interface{Name: string(bytes.TrimSpace(name))}
		for n, to := range map[int]*uint64{
			0: &i.RxBytes, 1: &i.RxPackets, 2: &i.RxErrors, 3: &i.RxDropped,
			8: &i.TxBytes, 9: &i.TxPackets, 10: &i.TxErrors, 11: &i.TxDropped,
		} {
			*to, _ = strconv.ParseUint(string(fields[n]), 10, 64) // the kernel writes numbers
		}
		u.add(i)
	}
	if u.Default == nil && len(u.Others) > 0 { // a network that names its interface otherwise
		u.Default, u.Others = &u.Others[0], u.Others[1:]
	}
}

// add skips interfaces that would break the answer for all pods: a privileged container can create thousands, with
// names that a protobuf message cannot hold.
func (u *Network) add(i Interface) {
	switch {
	case i.Name == "lo", !utf8.ValidString(i.Name):
	case i.Name == podInterface:
		u.Default = &i
	case len(u.Others) < maxInterfaces:
		u.Others = append(u.Others, i)
	}
}

// maxInterfaces bounds the interfaces reported for a pod in addition to the default one.
const maxInterfaces = 32
