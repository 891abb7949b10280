package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestImportFromContainerd has a real containerd pull the test images, imports them while the command is killed again
// and again, and runs one of them, with all registries gone. testdata/import.sh has the steps. The programs are those
// of `make tools images build` and of the benchmark (test/bench/peers); PEERS names a directory that has containerd.
func TestImportFromContainerd(t *testing.T) {
	peers := os.Getenv("PEERS")
	if peers == "" {
		peers = strings.TrimSpace(run(t, nil, "../bench/peers/build.sh 2>/dev/null"))
	}
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "podd-import-") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	out := run(t, []string{"DIR=" + dir, "BIN=" + bin, "CONTAINERD=" + filepath.Join(peers, "containerd")},
		`testdata/import.sh "$DIR" "$BIN" "$CONTAINERD" 2>&1`)
	t.Log(out)
	if !strings.Contains(out, "== done") {
		t.Error("import.sh did not reach its end")
	}
}
