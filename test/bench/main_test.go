package main

import (
	"slices"
	"strings"
	"testing"
)

func TestFlags(t *testing.T) {
	var p plan
	if err := p.parseNetworks("plain,masquerade"); err != nil || !slices.Equal(p.networks, []string{plain, masquerade}) {
		t.Errorf("networks %v, %v, want plain and masquerade", p.networks, err)
	}
	if err := parseNumbers("-present", "1000,0", 0, &p.others); err != nil || !slices.Equal(p.others, []int{1000, 0}) {
		t.Errorf("numbers %v, %v, want 1000 and 0", p.others, err)
	}
	p.only = []string{"life", "present"}
	if err := p.parseOnly(); err != nil {
		t.Error(err)
	}
	p.only = []string{"live"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{p.parseNetworks("bridge"), `-network: "bridge" is none of masquerade, plain`},
		{p.parseNetworks(""), "-network names no network"},
		{parseNumbers("-sizes", "20,0", 1, &p.sizes), `-sizes: "0" is not a number of 1 or more`},
		{parseNumbers("-present", "", 0, &p.others), `-present: "" is not a number`},
		{p.parseOnly(), `-only: "live" is none of life, churn`},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("error %v, want %q", c.err, c.want)
		}
	}
}
