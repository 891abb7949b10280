package checkpoint

// Disk changes records: Files, or a test's disk that fails and loses what is not synced.
type Disk interface {
	Create(parent, name string, fill func(dir string) error) error
	Commit(path, final string) error
	Write(path string, version int, v any) error
	WriteUnsynced(path string, version int, v any) error
	Sync(path string) error
	Remove(parent, name string) error
}

// Files is the Disk of a node: each method calls the function of its name.
type Files struct{}

var _ Disk = Files{}

// Create implements Disk.
func (Files) Create(parent, name string, fill func(dir string) error) error {
	return Create(parent, name, fill)
}

// Commit implements Disk.
func (Files) Commit(path, final string) error { return Commit(path, final) }

// Write implements Disk.
func (Files) Write(path string, version int, v any) error { return Write(path, version, v) }

// WriteUnsynced implements Disk.
func (Files) WriteUnsynced(path string, version int, v any) error {
	return WriteUnsynced(path, version, v)
}

// Sync implements Disk.
func (Files) Sync(path string) error { return Sync(path) }

// Remove implements Disk.
func (Files) Remove(parent, name string) error { return Remove(parent, name) }
