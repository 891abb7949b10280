package reference

import (
	"fmt"
	"testing"

	"github.com/containernetworking/cni/libcni"
)

// TestMasquerades: only bridge and ptp with ipMasq find their rules by the pod's interface.
func TestMasquerades(t *testing.T) {
	for plugin, want := range map[string]bool{
		`"type":"bridge","ipMasq":true`:  true,
		`"type":"ptp","ipMasq":true`:     true,
		`"type":"bridge","ipMasq":false`: false,
		`"type":"bridge"`:                false,
		`"type":"bridge","ipMasq":"x"`:   false,
		`"type":"macvlan","ipMasq":true`: false,
	} {
		list, err := libcni.NetworkConfFromBytes(fmt.Appendf(nil,
			`{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"firewall"},{%s}]}`, plugin))
		if err != nil {
			t.Fatal(err)
		}
		if got := Masquerades(list); got != want {
			t.Errorf("Masquerades of %s = %t, want %t", plugin, got, want)
		}
	}
}
