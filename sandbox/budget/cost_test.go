package budget

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestCost: what JSON makes of a message is not larger than its cost, whichever characters and fields it has.
func TestCost(t *testing.T) {
	mapping := func(n int) (ms []*cri.IDMapping) {
		for range n {
			ms = append(ms, &cri.IDMapping{HostId: 1, ContainerId: 1, Length: 1})
		}
		return ms
	}
	for name, m := range map[string]proto.Message{
		"text":          &cri.ContainerConfig{Args: []string{strings.Repeat("x", 10000)}},
		"HTML":          &cri.ContainerConfig{Args: []string{strings.Repeat("<>&", 10000)}},
		"controls":      &cri.ContainerConfig{Args: []string{strings.Repeat("\x01\x7f\"\\\n\r\t\b", 10000)}},
		"separators":    &cri.ContainerConfig{Args: []string{strings.Repeat("\u2028\u2029", 10000)}},
		"keys":          &cri.ContainerConfig{Labels: map[string]string{strings.Repeat("<", 10000): ""}},
		"bytes":         &cri.ContainerConfig{Envs: []*cri.KeyValue{{Key: "A", Value: make([]byte, 10000)}}},
		"many strings":  &cri.ContainerConfig{Args: make([]string, 10000)},
		"many messages": &cri.ContainerConfig{Mounts: []*cri.Mount{{UidMappings: mapping(10000)}}},
		"many numbers": &cri.ContainerConfig{Linux: &cri.LinuxContainerConfig{
			SecurityContext: &cri.LinuxContainerSecurityContext{SupplementalGroups: make([]int64, 10000)},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			plain, err := protojson.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if got := Cost(m); got < int64(len(plain)) {
				t.Errorf("Cost = %d, want at least the %d bytes of its JSON", got, len(plain))
			}
		})
	}
}

// TestCostOfEnvironment: values are bytes, which are text in config.json.
func TestCostOfEnvironment(t *testing.T) {
	value := strings.Repeat("\x01", 10000)
	text, err := json.Marshal([]string{"A=" + value})
	if err != nil {
		t.Fatal(err)
	}
	m := &cri.ContainerConfig{Envs: []*cri.KeyValue{{Key: "A", Value: []byte(value)}}}
	if got := Cost(m); got < int64(len(text)) {
		t.Errorf("Cost = %d, want at least the %d bytes of config.json", got, len(text))
	}
}

// services is a container with the variables of n services of its namespace.
func services(n int) *cri.ContainerConfig {
	m := &cri.ContainerConfig{}
	for i := range n {
		name, address := fmt.Sprintf("SERVICE_%d", i), fmt.Sprintf("10.96.%d.%d", i/256, i%256)
		for _, v := range [][2]string{
			{"_SERVICE_HOST", address}, {"_SERVICE_PORT", "80"}, {"_PORT", "tcp://" + address + ":80"},
			{"_PORT_80_TCP", "tcp://" + address + ":80"}, {"_PORT_80_TCP_PROTO", "tcp"}, {"_PORT_80_TCP_PORT", "80"},
			{"_PORT_80_TCP_ADDR", address},
		} {
			m.Envs = append(m.Envs, &cri.KeyValue{Key: name + v[0], Value: []byte(v[1])})
		}
	}
	return m
}

// TestServices: a container can have the variables of 5,000 services, Kubernetes' threshold for a namespace, and 500
// containers those of 300.
func TestServices(t *testing.T) {
	if got := Cost(services(5000)); got > MaxRequest {
		t.Errorf("Cost for 5,000 services = %d, want at most %d", got, MaxRequest)
	}
	table, cost := New(1, 1, 1), Cost(services(300))
	for i := range 500 {
		if _, err := table.Configurations.Try(fmt.Sprint("pod ", i/3), cost); err != nil {
			t.Fatalf("container %d: %v", i, err)
		}
	}
}

// TestCostIsBounded: a large message is not looked at beyond the limit of a request.
func TestCostIsBounded(t *testing.T) {
	m := &cri.ContainerConfig{Args: make([]string, 16<<20)}
	allocated := testing.AllocsPerRun(1, func() {
		if got := Cost(m); got <= MaxRequest {
			t.Errorf("Cost = %d, want more than %d", got, MaxRequest)
		}
	})
	if allocated > 1000 {
		t.Errorf("Cost made %v allocations, want at most 1000", allocated)
	}
}
