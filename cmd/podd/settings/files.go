package settings

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"github.com/podd-project/podd/cmd/podd/tomlconfig"
)

// Error is an error of the command line or the configuration: a retry does not help.
type Error struct{ Err error }

func (e Error) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e Error) Unwrap() error { return e.Err }

// defaultConfigFile may be absent. A file given by --config must exist.
const defaultConfigFile = "/etc/podd/podd.toml"

// maxConfigSize is the maximum size of a configuration file, in bytes.
const maxConfigSize = 1 << 20

// Flags are the flags that all commands have. They name the configuration file and override its keys.
type Flags struct {
	// File is the path of the configuration file.
	File  string
	flags *pflag.FlagSet
	set   []string
}

// keyFlags are the keys with a separate flag. --set sets any key.
var keyFlags = []struct{ flag, key, usage string }{
	{"root", "root", "directory of the state that outlives a reboot"},
	{"run", "run", "directory of the state that does not outlive a reboot"},
	{"listen", "listen", "unix socket of the CRI service"},
	{"log-level", "log.level", "trace, debug, info, warning or error"},
	{"log-format", "log.format", "text or json"},
}

// Register defines the flags in flags, which is parsed before Load.
func (f *Flags) Register(flags *pflag.FlagSet) {
	f.flags = flags
	flags.StringVar(&f.File, "config", defaultConfigFile,
		"configuration `file`; the files FILE.d/*.toml override it, in the order of their names")
	flags.StringArrayVar(&f.set, "set", nil, "set any key: `section.key=value` (repeatable)")
	for _, k := range keyFlags {
		flags.String(k.flag, "", k.usage)
	}
}

// Loaded is a configuration with the origin of its keys.
type Loaded struct {
	Config
	// Files are the files that were read, in order.
	Files []string
	set   *tomlconfig.Set
	// wrong has an error for each key of the files that cannot be set.
	wrong []error
}

// Values returns the keys and their values.
func (l *Loaded) Values() map[string]any { return l.set.Values() }

// Dump writes the configuration as a file, with the file or flag that set each key.
func (l *Loaded) Dump(w io.Writer) error { return l.set.Dump(w) }

// Configured reports whether a file or flag set a key of a table.
func (l *Loaded) Configured(table string) bool {
	for key := range l.set.Values() {
		if strings.HasPrefix(key, table+".") && l.set.Origin(key) != tomlconfig.Default {
			return true
		}
	}
	return false
}

// Load reads the files, applies the flags and validates the result. Its error is an Error that names every wrong key,
// unless a file cannot be read.
func (f *Flags) Load() (*Loaded, error) {
	l := &Loaded{Config: Default()}
	l.set = tomlconfig.New(&l.Config)
	if err := l.readFiles(f.File, f.flags.Changed("config")); err != nil {
		return nil, Error{Err: err}
	}
	wrong := append(l.wrong, f.apply(l.set)...)
	l.complete(l.set)
	wrong = append(wrong, l.validate(l.set.Origin)...)
	if len(wrong) > 0 {
		return nil, Error{Err: errors.Join(wrong...)}
	}
	return l, nil
}

// apply sets the keys that flags give, and returns an error for each wrong one.
func (f *Flags) apply(set *tomlconfig.Set) (errs []error) {
	for _, assignment := range f.set {
		key, value, ok := strings.Cut(assignment, "=")
		if !ok {
			errs = append(errs, fmt.Errorf("flag --set: %q is not of the form section.key=value", assignment))
			continue
		}
		if err := set.Assign("flag --set", strings.TrimSpace(key), value); err != nil {
			errs = append(errs, err)
		}
	}
	for _, k := range keyFlags {
		given := f.flags.Lookup(k.flag)
		if !given.Changed {
			continue
		}
		if err := set.Assign("flag --"+k.flag, k.key, given.Value.String()); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// readFiles merges file and its drop-ins.
func (l *Loaded) readFiles(file string, required bool) error {
	err := l.readFile(file)
	if err != nil && (required || !errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	entries, err := os.ReadDir(file + ".d") // sorted by name
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read drop-ins: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || filepath.Ext(e.Name()) != ".toml" {
			continue // backup files of editors and package managers
		}
		if err := l.readFile(filepath.Join(file+".d", e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (l *Loaded) readFile(path string) error {
	data, err := readConfigFile(path)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	l.Files = append(l.Files, path)
	if table := foreign.FindSubmatch(data); table != nil {
		from := map[string]string{"plugins": "containerd", "crio": "crio"}[string(table[1])]
		return fmt.Errorf("%s is a configuration of %s: contrib/docs/from-%[2]s.md says which keys podd has", path, from)
	}
	wrong, err := l.set.Merge(path, data)
	l.wrong = append(l.wrong, wrong...)
	return err
}

// foreign finds tables that only configurations of other runtimes have.
var foreign = regexp.MustCompile(`(?m)^\s*\[+\s*(plugins|crio)\b`)

// readConfigFile reads a file that decides which programs run as root: it must not be writable by everyone.
func readConfigFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is not a regular file", path)
	case info.Mode().Perm()&0o002 != 0:
		return nil, fmt.Errorf("%s: is writable by everyone (mode %04o): run chmod o-w", path, info.Mode().Perm())
	case info.Size() > maxConfigSize:
		return nil, fmt.Errorf("%s: is larger than %d bytes", path, maxConfigSize)
	}
	return io.ReadAll(io.LimitReader(f, maxConfigSize))
}
