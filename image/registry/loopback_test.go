package registry

import "testing"

func TestOnLoopback(t *testing.T) {
	for domain, want := range map[string]bool{
		"localhost": true, "localhost:5000": true, "127.0.0.1:5000": true, "127.9.9.9": true, "[::1]:5000": true,
		"[::1]":                 true,
		"localhost.example.com": false, "10.0.0.1:5000": false, "registry.k8s.io": false, "127.0.0.1.nip.io:80": false,
		"": false, "[": false, "[]": false,
	} {
		if got := onLoopback(domain); got != want {
			t.Errorf("onLoopback(%q) = %v, want %v", domain, got, want)
		}
	}
}
