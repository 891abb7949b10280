package preflight

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"
)

func TestSpeed(t *testing.T) {
	options := func(have string) func(string) string { return func(string) string { return have } }
	for name, test := range map[string]struct {
		add  func(*Report)
		want string // a part of the only note, "" for no note
	}{
		"masquerade":  {func(r *Report) { r.networkSpeed(SpeedFacts{Masquerade: "bridge"}) }, "plugin bridge runs iptables"},
		"no network":  {func(r *Report) { r.networkSpeed(SpeedFacts{}) }, ""},
		"runc, crun":  {func(r *Report) { r.runtimeSpeed(SpeedFacts{Version: "runc version 1", Crun: "c"}) }, `= "c"`},
		"runc alone":  {func(r *Report) { r.runtimeSpeed(SpeedFacts{Version: "runc version 1"}) }, ""},
		"crun":        {func(r *Report) { r.runtimeSpeed(SpeedFacts{Version: "crun version 1.14", Crun: "c"}) }, ""},
		"old crun":    {func(r *Report) { r.runtimeSpeed(SpeedFacts{Version: "crun version 1.8.1"}) }, "1.8.1 may compile"},
		"some crun":   {func(r *Report) { r.runtimeSpeed(SpeedFacts{Version: "crun version UNKNOWN"}) }, ""},
		"libraries":   {func(r *Report) { r.monitorSpeed(program(t, elf.PT_INTERP)) }, "linked to shared libraries"},
		"static":      {func(r *Report) { r.monitorSpeed(program(t, elf.PT_LOAD)) }, ""},
		"script":      {func(r *Report) { r.monitorSpeed(write(t, "#!/bin/sh\n")) }, ""},
		"no conmon":   {func(r *Report) { r.monitorSpeed("") }, ""},
		"cgroups v1":  {func(r *Report) { r.cgroupSpeed(false, options("")) }, "boot with version 2"},
		"cgroups v2":  {func(r *Report) { r.cgroupSpeed(true, options("rw,nsdelegate")) }, "remount,favordynmods"},
		"favored":     {func(r *Report) { r.cgroupSpeed(true, options("rw,nsdelegate,favordynmods")) }, ""},
		"RCU":         {func(r *Report) { r.rcuSpeed(2, write(t, "0\n")) }, "2 CPUs"},
		"expedited":   {func(r *Report) { r.rcuSpeed(2, write(t, "1\n")) }, ""},
		"many CPUs":   {func(r *Report) { r.rcuSpeed(64, write(t, "0\n")) }, ""},
		"no RCU file": {func(r *Report) { r.rcuSpeed(2, "/nonexistent") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var r Report
			test.add(&r)
			if test.want == "" {
				if len(r) != 0 {
					t.Errorf("report = %v, want none", r)
				}
			} else if len(r) != 1 || r[0].Result != Note || !strings.Contains(r[0].Detail, test.want) {
				t.Errorf("report = %v, want one note with %q", r, test.want)
			}
		})
	}
}

// program writes the headers of a program with one segment.
func program(t *testing.T, segment elf.ProgType) string {
	t.Helper()
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phnum: 1, Phentsize: uint16(binary.Size(elf.Prog64{})), Phoff: uint64(binary.Size(elf.Header64{}))}
	copy(h.Ident[:], []byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)})
	var b bytes.Buffer
	for _, part := range []any{h, elf.Prog64{Type: uint32(segment)}} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return write(t, b.String())
}
