package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestImport has a real containerd and CRI-O pull the test images, imports them while the command is killed again and
// again, and runs one of them, with all registries gone. testdata/import.sh has the steps. The programs are those of
// `make tools images build` and of the benchmark (test/bench/peers).
func TestImport(t *testing.T) {
	for _, other := range []string{"containerd", "crio"} {
		t.Run(other, func(t *testing.T) { importFrom(t, other) })
	}
}

func importFrom(t *testing.T, other string) {
	peers := strings.TrimSpace(run(t, []string{"OTHER=" + other}, `../bench/peers/build.sh "$OTHER" 2>/dev/null`))
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "podd-import-") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	out := run(t, []string{"DIR=" + dir, "BIN=" + bin, "PEERS=" + peers, "OTHER=" + other},
		`testdata/import.sh "$DIR" "$BIN" "$PEERS" "$OTHER" 2>&1`)
	t.Log(out)
	if !strings.Contains(out, "== done") {
		t.Error("import.sh did not reach its end")
	}
}
