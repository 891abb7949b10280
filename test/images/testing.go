package images

import "testing"

// Serve builds the images if necessary and serves them on a free port of loopback until the test ends.
func Serve(t testing.TB) *Registry {
	t.Helper()
	path, err := Build(t.Context())
	if err != nil {
		t.Fatalf("build the test images: %v", err)
	}
	r, err := Listen(path, "127.0.0.1:0")
	if err != nil {
		t.Fatalf("serve the test images: %v", err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close the test registry: %v", err)
		}
	})
	return r
}
