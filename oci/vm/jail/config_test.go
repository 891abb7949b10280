package jail

import (
	"os"
	"path/filepath"
	"testing"
)

// TestConfigStaysInTheSharedDirectory: a guest that replaces a container's new directory by a link, to the host's root
// by /proc/1/root for example, does not make the host write there.
func TestConfigStaysInTheSharedDirectory(t *testing.T) {
	outside := t.TempDir()
	for name, target := range map[string]string{
		"absolute": outside,
		"relative": "../" + filepath.Base(outside),
		"magic":    "/proc/self/root" + outside,
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(filepath.Dir(outside), "shared-"+name)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(target, filepath.Join(dir, "c")); err != nil {
				t.Fatal(err)
			}
			shared, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer shared.Close()
			if err := writeConfig(shared, "c", []byte("{}")); err == nil {
				t.Error("writeConfig through a link = nil, want an error")
			}
			if files, _ := os.ReadDir(outside); len(files) > 0 {
				t.Errorf("the host has a new file %s", files[0].Name())
				_ = os.Remove(filepath.Join(outside, files[0].Name()))
			}
		})
	}
}
