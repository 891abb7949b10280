package images

import (
	"bytes"
	"fmt"
)

// InitialFile is a file of an initial file system; Major and Minor are those of a device.
type InitialFile struct {
	Name               string
	Mode, Major, Minor int
	Data               []byte
}

// InitialFileSystem is a cpio archive (Documentation/driver-api/early-userspace/buffer-format.rst) with a program as
// its first process, the console that the kernel opens for it, and more files.
func InitialFileSystem(program []byte, more ...InitialFile) []byte {
	var b bytes.Buffer
	align := func() { b.Write(make([]byte, -b.Len()&3)) }
	files := append([]InitialFile{
		{"dev", 0o40755, 0, 0, nil}, {"dev/console", 0o20600, 5, 1, nil}, {"init", 0o100755, 0, 0, program},
	}, more...)
	for i, r := range append(files, InitialFile{Name: "TRAILER!!!"}) {
		fmt.Fprintf(&b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", i+1, r.Mode, 0, 0, 1, 0, len(r.Data),
			0, 0, r.Major, r.Minor, len(r.Name)+1, 0)
		b.WriteString(r.Name + "\x00")
		align()
		b.Write(r.Data)
		align()
	}
	return b.Bytes()
}
