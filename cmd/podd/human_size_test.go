package main

import "testing"

func TestHumanSize(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 20 << 10: "20 KiB", 1000 << 10: "1.0 MiB",
		5 << 30: "5.0 GiB", 1 << 63: "8.0 EiB",
	} {
		if got := humanSize(n); got != want {
			t.Errorf("humanSize(%d) = %q, want %q", n, got, want)
		}
	}
}
