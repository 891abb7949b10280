package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNoX32 asks the kernel in another way: whether it runs a program of x32. noX32 does not ask with a seccomp filter
// on podd.
func TestNoX32(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		if noX32() {
			t.Error("noX32 = true on an architecture without it, want false")
		}
		return
	}
	program := filepath.Join(t.TempDir(), "x32")
	if err := os.WriteFile(program, x32Program(t), 0o700); err != nil {
		t.Fatal(err)
	}
	err := exec.Command(program).Run()
	status, _ := os.ReadFile("/proc/self/status")
	filtered := !bytes.Contains(status, []byte("\nSeccomp:\t0\n"))
	if refused := errors.Is(err, unix.ENOEXEC); noX32() != (refused && !filtered) || !refused && err != nil {
		t.Errorf("noX32 = %v, want %v: running a program of x32 = %v", noX32(), refused, err)
	}
}

// x32Program is an ELF file of x32 that calls exit(0).
func x32Program(t *testing.T) []byte {
	const base, headers = 0x400000, 52 + 32
	code := []byte{
		0xb8, 0x3c, 0, 0, 0x40, // mov eax, x32 bit | exit
		0x31, 0xff, // xor edi, edi
		0x0f, 0x05, // syscall
	}
	size := uint32(headers + len(code))
	var file bytes.Buffer
	for _, part := range []any{
		[16]byte{0x7f, 'E', 'L', 'F', 1, 1, 1}, // 32 bits, little endian
		uint16(2), uint16(62), uint32(1),       // executable, x86-64
		uint32(base + headers), uint32(52), uint32(0), uint32(0), // entry, program headers, no sections
		uint16(52), uint16(32), uint16(1), uint16(0), uint16(0), uint16(0),
		uint32(1), uint32(0), uint32(base), uint32(base), size, size, uint32(5), uint32(0x1000), // load all, r-x
		code,
	} {
		if err := binary.Write(&file, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return file.Bytes()
}
