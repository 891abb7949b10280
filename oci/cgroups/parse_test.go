package cgroups

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestNumber(t *testing.T) {
	for in, want := range map[string]uint64{
		"0\n": 0, "42": 42, " 7 ": 7, "max\n": Unlimited, "9223372036854771712": Unlimited, "9223372036854710272": Unlimited,
		"4611686018427387904": 1 << 62, "": 0, "-1": 0, "12a": 0,
	} {
		if got := number([]byte(in)); got != want {
			t.Errorf("number(%q) = %d, want %d", in, got, want)
		}
	}
}

func TestPressure(t *testing.T) {
	p := pressure([]byte("some avg10=1.05 avg60=100.00 avg300=0.99 total=12\nnonsense\nfull avg10=x total=\n"))
	want := Pressure{Some: Stall{1.05, 100, 0.99, 12 * time.Microsecond}}
	if *p != want {
		t.Errorf("pressure = %+v, want %+v", *p, want)
	}
}

// FuzzParse: the kernel's files are trusted, but a parser that panics ends the daemon.
func FuzzParse(f *testing.F) {
	f.Add([]byte("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"))
	f.Add([]byte("8:0 rbytes=1 wios=x\n7:0\nTotal 5\n8:0 Read 4\n"))
	f.Add([]byte("total_rss 4\ntotal_\n \n\nmax max\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var u Usage
		for _, files := range [][]fileParser{
			cpuFilesV1(), cpuFilesV2(), cpuacctFilesV1(), memoryFilesV1(), memoryFilesV2(), pidsFiles(), pressureFiles(),
		} {
			for _, file := range files {
				file.parse(text, &u)
			}
		}
		u.finish()
		if u.Memory.WorkingSet > u.Memory.Usage {
			t.Errorf("WorkingSet = %d, want at most Usage, %d", u.Memory.WorkingSet, u.Memory.Usage)
		}
		if p := u.CPUPressure.Some.Avg10; math.IsNaN(p) || p < 0 {
			t.Errorf("Avg10 = %v, want 0 or more", p)
		}
		devices := ioDevices{}
		devices.v2(string(text))
		devices.v1(string(text), func(*IO, string, uint64) {})
		_, _ = parseMounts(bytes.NewReader(text))
	})
}

// TestAnonymousMemory: files in memory do not count.
func TestAnonymousMemory(t *testing.T) {
	for _, test := range []struct{ controller, stat string }{
		{unified, "anon 3\nfile 100\nshmem 4\n"}, {"memory", "rss 1\ntotal_rss 3\ntotal_cache 100\ntotal_shmem 4\n"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "memory.stat"), []byte(test.stat), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := (Dirs{test.controller: dir}).AnonymousMemory(); got != 7 {
			t.Errorf("AnonymousMemory of %q = %d, want 7", test.stat, got)
		}
	}
	if got := (Dirs{}).AnonymousMemory(); got != 0 {
		t.Errorf("AnonymousMemory without a cgroup = %d, want 0", got)
	}
}
