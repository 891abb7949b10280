package network

import (
	"encoding/json"
	"slices"
	"testing"
)

// TestDeliveredTemplate: podd's template makes a valid configuration of one range and of two.
func TestDeliveredTemplate(t *testing.T) {
	for _, cidr := range []string{"10.1.2.0/24", "10.1.2.0/24,fd00:1::/64"} {
		data, err := parsePodCIDR(cidr)
		if err != nil {
			t.Fatal(err)
		}
		out, err := renderConf("../contrib/kubernetes/podd-cni.template", data)
		if err != nil {
			t.Fatalf("parsePodCIDR(%s) = %v, want no error", cidr, err)
		}
		var conf struct {
			Plugins []struct {
				IPAM struct {
					Ranges [][]struct{ Subnet string }
					Routes []struct{ Dst string }
				}
			}
		}
		if err := json.Unmarshal(out, &conf); err != nil {
			t.Fatalf("template with %s is not JSON: %v\n%s", cidr, err, out)
		}
		var ranges, routes []string
		for _, r := range conf.Plugins[0].IPAM.Ranges {
			ranges = append(ranges, r[0].Subnet)
		}
		for _, r := range conf.Plugins[0].IPAM.Routes {
			routes = append(routes, r.Dst)
		}
		if !slices.Equal(ranges, data.PodCIDRRanges) || !slices.Equal(routes, data.Routes) {
			t.Errorf("%s: ranges %v, routes %v, want %v, %v", cidr, ranges, routes, data.PodCIDRRanges, data.Routes)
		}
	}
}
