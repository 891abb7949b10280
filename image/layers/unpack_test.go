package layers

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/vbatts/tar-split/tar/asm"
	tarsplit "github.com/vbatts/tar-split/tar/storage"
	"golang.org/x/sys/unix"
)

// file, dir, link, hard and whiteout return entries of a tar. The target of a regular file is its content.
func file(name, content string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content)), Linkname: content}
}

func dir(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755} }

func link(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: to}
}

func hard(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeLink, Mode: 0o644, Linkname: to}
}

func whiteout(name string) tar.Header {
	return tar.Header{Name: filepath.Join(filepath.Dir(name), ".wh."+filepath.Base(name)), Typeflag: tar.TypeReg}
}

// xattr adds an extended attribute to an entry.
func xattr(h tar.Header, name, value string) tar.Header {
	if h.PAXRecords = maps.Clone(h.PAXRecords); h.PAXRecords == nil {
		h.PAXRecords = map[string]string{}
	}
	h.PAXRecords["SCHILY.xattr."+name] = value
	return h
}

// tarOf returns a tar of entries.
func tarOf(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range entries {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content, h.Linkname = h.Linkname, ""
		}
		if h.Typeflag != tar.TypeXGlobalHeader {
			h.ModTime = time.Unix(1700000000, 0)
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// unpackBlob unpacks a blob whose tar is raw.
func unpackBlob(t testing.TB, blob, raw []byte) (*staged, error) {
	t.Helper()
	s := &staged{
		Layer: Layer{DiffID: digest.FromBytes(raw)}, dir: t.TempDir(), count: func(int64, int64) error { return nil },
		metadata: bounded{written: new(atomic.Int64), most: 1 << 30},
	}
	if err := os.WriteFile(s.blob(), blob, 0o600); err != nil {
		t.Fatal(err)
	}
	return s, s.unpack(context.Background())
}

// listing describes the files below a directory, sorted: type, name, and content, target or link count.
func listing(t testing.TB, root string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // overlayfs lists whiteouts in a directory that no lower layer has
			return nil
		}
		if err != nil || path == root && opaque(path) == "" {
			return err
		}
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		out = append(out, describe(t, root, path, d))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func describe(t testing.TB, root, path string, d fs.DirEntry) string {
	t.Helper()
	name, _ := filepath.Rel(root, path)
	info, err := d.Info()
	if err != nil {
		t.Fatal(err)
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		return name + "/" + opaque(path)
	case fs.ModeSymlink:
		target, _ := os.Readlink(path)
		return name + " -> " + target
	case fs.ModeDevice | fs.ModeCharDevice:
		return name + " whiteout"
	case 0:
		raw, _ := os.ReadFile(path)
		return name + " = " + string(raw)
	}
	return name + " " + info.Mode().String()
}

func opaque(path string) string {
	value := make([]byte, 10)
	if n, err := unix.Lgetxattr(path, "trusted.overlay.opaque", value); err == nil {
		return " opaque " + string(value[:n])
	}
	return ""
}

// TestUnpack: paths that a tar has twice, whiteouts of paths that it has too, links on the way to a file, and
// attributes of overlayfs. All of each tar can be reassembled.
func TestUnpack(t *testing.T) {
	for name, c := range map[string]struct {
		entries []tar.Header
		want    []string
	}{
		"plain": {[]tar.Header{dir("d/"), file("d/f", "1"), link("l", "d/f"), hard("h", "d/f")},
			[]string{"d/", "d/f = 1", "h = 1", "l -> d/f"}},
		"missing parents":   {[]tar.Header{file("a/b/c", "1")}, []string{"a/", "a/b/", "a/b/c = 1"}},
		"absolute names":    {[]tar.Header{file("/a", "1"), hard("/b", "/a")}, []string{"a = 1", "b = 1"}},
		"a whiteout":        {[]tar.Header{whiteout("a")}, []string{"a whiteout"}},
		"a whiteout twice":  {[]tar.Header{whiteout("a"), whiteout("a")}, []string{"a whiteout"}},
		"an opaque d":       {[]tar.Header{dir("d/"), whiteout("d/.wh..opq")}, []string{"d/ opaque y"}},
		"an opaque root":    {[]tar.Header{whiteout(".wh..opq")}, []string{"./ opaque y"}},
		"a file twice":      {[]tar.Header{file("a", "old"), file("a", "new")}, []string{"a = new"}},
		"a file thrice":     {[]tar.Header{file("a", "1"), file("./a", "2"), file("/a", "3")}, []string{"a = 3"}},
		"an empty one":      {[]tar.Header{file("a", "old"), file("a", "")}, []string{"a = "}},
		"a directory twice": {[]tar.Header{dir("d/"), file("d/f", "1"), dir("d/")}, []string{"d/", "d/f = 1"}},
		"a link twice":      {[]tar.Header{link("l", "a"), link("l", "b")}, []string{"l -> b"}},
		"a hard link twice": {[]tar.Header{file("a", "1"), hard("b", "a"), hard("b", "a")}, []string{"a = 1", "b = 1"}},
		"a link to itself":  {[]tar.Header{file("a", "1"), hard("a", "a")}, []string{"a = 1"}},
		"a linked file twice": {[]tar.Header{file("a", "old"), hard("b", "a"), file("a", "new")},
			[]string{"a = new", "b = old"}},
		"a hard link without parents": {[]tar.Header{file("a", "1"), hard("d/e/b", "a")},
			[]string{"a = 1", "d/", "d/e/", "d/e/b = 1"}},
		"a hard link through a link": {[]tar.Header{file("d/a", "1"), link("l", "/d"), hard("b", "l/a")},
			[]string{"b = 1", "d/", "d/a = 1", "l -> /d"}},
		"an attribute without a value": {
			[]tar.Header{xattr(file("a", "1"), "user.a", "")}, []string{"a = 1"}},
		"a hard link that becomes a file": {[]tar.Header{file("a", "1"), hard("b", "a"), file("b", "2")},
			[]string{"a = 1", "b = 2"}},
		"a directory that becomes a file": {
			[]tar.Header{dir("d/"), file("d/e/f", "old"), whiteout("d/g"), hard("d/h", "d/e/f"), file("d", "new")},
			[]string{"d = new"}},
		"a file that becomes a directory": {[]tar.Header{file("d", "old"), dir("d/"), file("d/f", "new")},
			[]string{"d/ opaque y", "d/f = new"}},
		"a directory that becomes a link": {[]tar.Header{dir("e/"), file("d/f", "old"), link("d", "e"), file("d/f", "new")},
			[]string{"d -> e", "e/", "e/f = new"}},
		"a file twice by a link": {[]tar.Header{dir("d/"), link("l", "d"), file("l/f", "old"), file("d/f", "new")},
			[]string{"d/", "d/f = new", "l -> d"}},
		"a whiteout, then a directory": {[]tar.Header{whiteout("d"), dir("d/"), file("d/new", "1")},
			[]string{"d/ opaque y", "d/new = 1"}},
		"a whiteout, then a file in it": {[]tar.Header{whiteout("d"), file("d/e/new", "1")},
			[]string{"d/ opaque y", "d/e/", "d/e/new = 1"}},
		"a directory, then a whiteout": {[]tar.Header{dir("d/"), file("d/new", "1"), whiteout("d")},
			[]string{"d/ opaque y", "d/new = 1"}},
		"a whiteout, then a file": {[]tar.Header{whiteout("f"), file("f", "1")}, []string{"f = 1"}},
		"a file, then a whiteout": {[]tar.Header{file("f", "1"), whiteout("f")}, []string{"f = 1"}},
		"a whiteout, then a link": {[]tar.Header{whiteout("l"), link("l", "a")}, []string{"l -> a"}},
		"a whiteout of a link to a directory": {[]tar.Header{dir("d/"), link("l", "d"), whiteout("l")},
			[]string{"d/", "l -> d"}},
		"a link out of the layer": {[]tar.Header{link("l", "../../etc"), file("l/f", "1")},
			[]string{"etc/", "etc/f = 1", "l -> ../../etc"}},
		"an absolute link": {[]tar.Header{dir("d/"), link("l", "/d"), file("l/f", "1")},
			[]string{"d/", "d/f = 1", "l -> /d"}},
		"attributes of overlayfs": {[]tar.Header{xattr(dir("d/"), "trusted.overlay.opaque", "y")}, []string{"d/"}},
		"attributes that only files can have": {[]tar.Header{
			xattr(link("l", "a"), "user.a", "b"), hard("h", "l"), xattr(hard("i", "l"), "user.a", "b"),
			xattr(tar.Header{Name: "p", Typeflag: tar.TypeFifo, Mode: 0o644}, "user.a", "b")},
			[]string{"h -> a", "i -> a", "l -> a", "p prw-r--r--"}},
		"two global headers": {[]tar.Header{
			{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "a"}},
			{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "b"}},
			file("a", "1")}, []string{"a = 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			raw := tarOf(t, c.entries...)
			s, err := unpackBlob(t, raw, raw)
			if err != nil {
				t.Fatal(err)
			}
			if got := listing(t, s.files()); !slices.Equal(got, c.want) {
				t.Errorf("files:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			checkReassembled(t, s, raw)
		})
	}
}

// checkReassembled compares the tar that storage would reassemble with the one that was unpacked.
func checkReassembled(t *testing.T, s *staged, raw []byte) {
	t.Helper()
	split, err := os.Open(s.tarSplit())
	if err != nil {
		t.Fatal(err)
	}
	defer split.Close()
	var again bytes.Buffer
	err = asm.WriteOutputTarStream(layerFiles(s.files()), tarsplit.NewJSONUnpacker(split), &again)
	if err != nil || !bytes.Equal(again.Bytes(), raw) {
		t.Errorf("reassembled: %d bytes, %v, want the tar of %d bytes", again.Len(), err, len(raw))
	}
}

// layerFiles opens files of a layer as a process would whose root directory the layer is.
type layerFiles string

// Get is that of tarsplit.FileGetter.
func (l layerFiles) Get(name string) (io.ReadCloser, error) {
	tree, err := openTree(string(l), "")
	if err != nil {
		return nil, err
	}
	defer tree.close()
	dir, base := filepath.Split(filepath.Clean("/" + name))
	if err := tree.enter(dir); err != nil {
		return nil, err
	}
	return os.Open(tree.path(base))
}

// TestOddTars: tars without an end, with more after it, with odd names and attributes, and no tar. All of each can be
// reassembled.
func TestOddTars(t *testing.T) {
	plain := tarOf(t, file("a", "1"))
	names := []string{"caf\xe9", strings.Repeat("n", 255), strings.Repeat("d/", 200) + "f", "new\nline", `back\slash`, " "}
	var odd []tar.Header
	for _, name := range names {
		odd = append(odd, file(name, "1"))
	}
	first := file("a", "1")
	for name, value := range map[string]string{
		"user.a": "b", "security.ima": "\x01x", "unknown.a": "b",
		"system.posix_acl_access": "\x02\x00\x00\x00\x01\x00\x06\x00\xff\xff\xff\xff\x04\x00\x04\x00\xff\xff\xff\xff" +
			"\x20\x00\x04\x00\xff\xff\xff\xff",
	} {
		first = xattr(first, name, value)
	}
	for name, c := range map[string]struct {
		raw   []byte
		files int
	}{
		"no end":      {plain[:1024], 1},
		"half an end": {plain[:1536], 1},
		"more":        {append(bytes.Clone(plain), "what follows the end"...), 1},
		"nothing":     {nil, 0},
		"names":       {tarOf(t, odd...), len(names) + 200},
		"attributes":  {tarOf(t, first), 1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, blob := range [][]byte{c.raw, gzipOf(t, c.raw)} {
				s, err := unpackBlob(t, blob, c.raw)
				if err != nil {
					t.Fatal(err)
				}
				if got := listing(t, s.files()); len(got) != c.files {
					t.Errorf("%d files: %.500q, want %d", len(got), got, c.files)
				}
				checkReassembled(t, s, c.raw)
			}
		})
	}
	if _, err := unpackBlob(t, append(gzipOf(t, plain), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), plain); err == nil {
		t.Error("zeros after the end of gzip were taken, want an error as elsewhere")
	}
}

// TestSparseFiles: a tar with the data of files without their holes, in the formats of GNU tar for PAX. It can be
// reassembled, also if a later entry replaces the file.
func TestSparseFiles(t *testing.T) {
	const hole, length, data = "1048576", "1048579", "end"
	block := "1\n" + hole + "\n3\n"
	for name, c := range map[string]struct {
		content string
		records map[string]string
	}{
		"0.1": {data, map[string]string{"size": length, "numblocks": "1", "map": hole + ",3"}},
		"1.0": {block + strings.Repeat("\x00", 512-len(block)) + data,
			map[string]string{"major": "1", "minor": "0", "realsize": length, "name": "s"}},
	} {
		t.Run(name, func(t *testing.T) {
			sparse := file("s", c.content)
			sparse.PAXRecords = map[string]string{}
			for key, value := range c.records {
				sparse.PAXRecords["GNU_sparse."+key] = value // the writer refuses the real name
			}
			for _, more := range [][]tar.Header{{file("a", "1")}, {hard("h", "s"), file("s", "new"), file("a", "1")}} {
				raw := tarOf(t, append([]tar.Header{dir("d/"), sparse}, more...)...)
				raw = bytes.ReplaceAll(raw, []byte("GNU_sparse."), []byte("GNU.sparse."))
				s, err := unpackBlob(t, raw, raw)
				if err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(s.files(), "s")
				if len(more) > 1 {
					path = filepath.Join(s.files(), "h")
				}
				got, err := os.ReadFile(path)
				if err != nil || fmt.Sprint(len(got)) != length || !bytes.HasSuffix(got, []byte("\x00"+data)) {
					t.Errorf("file of %d bytes, %v, want %s with %q at the end", len(got), err, length, data)
				}
				checkReassembled(t, s, raw)
			}
		})
	}
}

// TestHeadersAreBounded: the headers of an entry are in memory, with content that nothing has read.
func TestHeadersAreBounded(t *testing.T) {
	sparse := file(".wh.s", strings.Repeat("\x00", maxRaw+1)) // of 0 bytes, so that nothing reads its data
	sparse.PAXRecords = map[string]string{
		"GNU_sparse.major": "0", "GNU_sparse.minor": "1", "GNU_sparse.size": "0", "GNU_sparse.numblocks": "0",
	}
	hidden := bytes.ReplaceAll(tarOf(t, sparse, file("a", "1")), []byte("GNU_sparse."), []byte("GNU.sparse."))
	long := file("a", "1")
	long.PAXRecords = map[string]string{"VENDOR.long": strings.Repeat("x", 1<<20-512)}
	many := tarOf(t, long)
	header := many[:len(many)-4*512] // without the file's header, its content and the end
	many = append(bytes.Repeat(header, maxRaw/len(header)+1), many...)
	for name, raw := range map[string][]byte{"data of a sparse whiteout": hidden, "PAX headers": many} {
		if _, err := unpackBlob(t, raw, raw); err == nil || !strings.Contains(err.Error(), "bytes of headers") {
			t.Errorf("%s: unpack = %v, want it refused", name, err)
		}
	}
}

// TestUnpackRefuses: entries that no layer can have fail with a text that names the entry.
func TestUnpackRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		entries []tar.Header
		want    string
	}{
		"a path out of the layer":      {[]tar.Header{file("../a", "1")}, `"../a": the path leads out of the layer`},
		"a hard link out of the layer": {[]tar.Header{hard("a", "../../etc/passwd")}, "leads out of the layer"},
		"a hard link to nothing":       {[]tar.Header{hard("a", "b")}, "no such file"},
		"a hard link to a whiteout":    {[]tar.Header{whiteout("a"), hard("b", "a")}, "no such file"},
		"a whiteout linked to itself":  {[]tar.Header{whiteout("d/a"), hard("d/a", "d/a")}, "no such file"},
		"a hard link to a later entry": {[]tar.Header{hard("a", "b"), file("b", "1")}, "no such file"},
		"a hard link by a link":        {[]tar.Header{link("l", "/etc"), hard("a", "l/passwd")}, "no such file"},
		"a file for a directory":       {[]tar.Header{file("a", "1"), file("a/b", "1")}, "not a directory"},
		"a loop of links":              {[]tar.Header{link("a", "b"), link("b", "a"), file("a/c", "1")}, "too many"},
		"a file for the root":          {[]tar.Header{link("/", "etc")}, "the root of the layer is not a directory"},
		"a whiteout of nothing":        {[]tar.Header{file("d/.wh.", "")}, "a whiteout names no file"},
		"a whiteout of itself":         {[]tar.Header{file("d/.wh..", "")}, "a whiteout names no file"},
		"a whiteout of the parent":     {[]tar.Header{file("d/.wh...", "")}, "a whiteout names no file"},
		"a whiteout with content":      {[]tar.Header{file(".wh.a", "1")}, "a whiteout has content"},
		"an owner that is none": {[]tar.Header{{Name: "a", Typeflag: tar.TypeReg, Uid: 1<<32 - 1}},
			"the owner 4294967295:0 is not valid"},
	} {
		t.Run(name, func(t *testing.T) {
			raw := tarOf(t, c.entries...)
			_, err := unpackBlob(t, raw, raw)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("unpack = %v, want %q", err, c.want)
			}
		})
	}
}

// TestUnpackAttributes: owner, mode with all bits, capabilities and times, also of files with hard links and of
// directories, which are changed after their entry.
func TestUnpackAttributes(t *testing.T) {
	capability := string([]byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	suid := xattr(file("d/f", "1"), "security.capability", capability)
	suid.Mode, suid.Uid, suid.Gid = 0o6755, 12, 4294967294
	alias := hard("d/h", "d/f")
	alias.Mode, alias.Uid, alias.Gid = suid.Mode, suid.Uid, suid.Gid
	sticky := dir("d/")
	sticky.Mode, sticky.Uid = 0o1777, 34
	fifo := tar.Header{Name: "p", Typeflag: tar.TypeFifo, Mode: 0o622, Gid: 5}
	terminals := tar.Header{Name: "ptmx", Typeflag: tar.TypeChar, Mode: 0o666, Devmajor: 5, Devminor: 2, Gid: 5}
	raw := tarOf(t, sticky, suid, alias, fifo, terminals)
	s, err := unpackBlob(t, raw, raw)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"d/f": "106755 12:4294967294 1700000000", "d/h": "106755 12:4294967294 1700000000",
		"d": "41777 34:0 1700000000", "p": "10622 0:5 1700000000", "ptmx": "20666 0:5 1700000000",
	} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(s.files(), name), &st); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%o %d:%d %d", st.Mode, st.Uid, st.Gid, st.Mtim.Sec); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	value := make([]byte, 64)
	n, err := unix.Lgetxattr(filepath.Join(s.files(), "d/f"), "security.capability", value)
	if err != nil || string(value[:n]) != capability {
		t.Errorf("capabilities = %x, %v, want %x", value[:max(n, 0)], err, capability)
	}
}

// TestUnpackCounts: a file is counted before it is written, and padding too.
func TestUnpackCounts(t *testing.T) {
	full := errors.New("full")
	raw := tarOf(t, file("a", "1"), file("b", "12345"))
	s := &staged{
		Layer: Layer{DiffID: digest.FromBytes(raw)}, dir: t.TempDir(),
		metadata: bounded{written: new(atomic.Int64), most: 1 << 30},
		count: func(_, bytes int64) error {
			if bytes == 5 {
				return full
			}
			return nil
		},
	}
	if err := os.WriteFile(s.blob(), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.unpack(t.Context()); !errors.Is(err, full) {
		t.Errorf("unpack = %v, want %v", err, full)
	}
	if got, want := listing(t, s.files()), []string{"a = 1"}; !slices.Equal(got, want) {
		t.Errorf("files = %q, want %q", got, want)
	}
}

// TestDecompress: every compression that registries have, also zstd that begins with a skippable frame, and several
// frames or members, as zstd:chunked and eStargz have. None of them may be cut off.
func TestDecompress(t *testing.T) {
	raw := tarOf(t, file("a", strings.Repeat("1", 100_000)))
	skippable := []byte{0x5a, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4}
	frames, members := [][]byte{skippable}, [][]byte{}
	for part := range slices.Chunk(raw, 30_000) {
		frames = append(frames, zstdOf(t, part), skippable)
		members = append(members, gzipOf(t, part))
	}
	for name, blob := range map[string][]byte{
		"none": raw, "gzip": gzipOf(t, raw), "zstd": zstdOf(t, raw), "pzstd": append(skippable, zstdOf(t, raw)...),
		"frames": slices.Concat(frames...), "chunked": slices.Concat(frames[1:]...), "members": slices.Concat(members...),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := unpackBlob(t, blob, raw); err != nil {
				t.Error(err)
			}
			if _, err := unpackBlob(t, blob[:len(blob)/2], raw); err == nil {
				t.Error("half of it was unpacked, want an error")
			}
		})
	}
}

func gzipOf(t *testing.T, raw []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(raw)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstdOf(t *testing.T, raw []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(raw, nil)
}
