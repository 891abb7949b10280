// Command bom lists the components of a release's binary: as a CycloneDX document, and as the licenses of its modules,
// which their authors ask to go with the binary.
//
// The same binary gives the same output: times come from SOURCE_DATE_EPOCH, and it has no random serial number.
package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "", "`file` of the binary")
	flag.StringVar(&o.version, "version", "", "its version")
	flag.StringVar(&o.libc, "libc", "", "Debian package of the C library in its small programs: `name=version`")
	flag.StringVar(&o.sbom, "sbom", "", "`file` to write the CycloneDX document to")
	flag.StringVar(&o.licenses, "licenses", "", "`file` to write the licenses to")
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "bom:", err)
		os.Exit(1)
	}
}

type options struct{ binary, version, libc, sbom, licenses string }

func (o options) run() error {
	info, err := buildinfo.ReadFile(o.binary)
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	modules := linkedModules(info)
	var document bytes.Buffer
	encoder := cdx.NewBOMEncoder(&document, cdx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.Encode(o.document(info, modules, time.Unix(seconds, 0).UTC())); err != nil {
		return err
	}
	texts, err := licenseTexts(modules)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(o.sbom, document.Bytes(), 0o644), os.WriteFile(o.licenses, texts, 0o644),
	)
}

// linkedModules returns the modules in a binary other than its own, those that replace others in their place.
func linkedModules(info *debug.BuildInfo) []*debug.Module {
	var out []*debug.Module
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b *debug.Module) int { return cmp.Compare(a.Path, b.Path) })
	return out
}

// document returns the list of components: the modules, Go's standard library and the C library.
func (o options) document(info *debug.BuildInfo, modules []*debug.Module, made time.Time) *cdx.BOM {
	bom := cdx.NewBOM()
	main := component(cdx.ComponentTypeApplication, info.Main.Path, o.version)
	bom.Metadata = &cdx.Metadata{Timestamp: made.Format(time.RFC3339), Component: &main}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	components := []cdx.Component{component(cdx.ComponentTypeLibrary, "std", goVersion)}
	for _, m := range modules {
		c := component(cdx.ComponentTypeLibrary, m.Path, m.Version)
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
		components = append(components, c)
	}
	if name, version, ok := strings.Cut(o.libc, "="); ok {
		url := "pkg:deb/debian/" + name + "@" + version
		components = append(components, cdx.Component{
			Type: cdx.ComponentTypeLibrary, BOMRef: url, Name: name, Version: version, PackageURL: url,
		})
	}
	var needed []string
	for _, c := range components {
		needed = append(needed, c.BOMRef)
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &needed}}
	return bom
}

// component returns a Go module as a component.
func component(kind cdx.ComponentType, path, version string) cdx.Component {
	url := "pkg:golang/" + path + "@" + version
	return cdx.Component{Type: kind, BOMRef: url, Name: path, Version: version, PackageURL: url}
}

// licenseFile matches the names of files with a license or a notice.
var licenseFile = regexp.MustCompile(`(?i)^((un)?licen[cs]e|copying|notice|copyright|patents)([-._].*)?$`)

// licenseTexts returns the licenses and notices of all modules, from the module cache. A module without any is an
// error: it must not be distributed.
func licenseTexts(modules []*debug.Module) ([]byte, error) {
	var out bytes.Buffer
	for _, m := range modules {
		dir, err := moduleDir(m)
		if err != nil {
			return nil, err
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		found := 0
		for _, e := range entries {
			if !e.Type().IsRegular() || !licenseFile.MatchString(e.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&out, "==== %s %s: %s ====\n\n%s\n\n", m.Path, m.Version, e.Name(), bytes.TrimSpace(text))
			found++
		}
		if found == 0 {
			return nil, fmt.Errorf("module %s %s has no license file in %s", m.Path, m.Version, dir)
		}
	}
	return out.Bytes(), nil
}

// moduleDir returns the directory of a module in the module cache.
func moduleDir(m *debug.Module) (string, error) {
	out, err := exec.Command("go", "mod", "download", "-json", m.Path+"@"+m.Version).Output()
	if err != nil {
		return "", fmt.Errorf("find module %s %s: %w", m.Path, m.Version, err)
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(out, &found); err != nil {
		return "", fmt.Errorf("find module %s %s: %w", m.Path, m.Version, err)
	}
	return found.Dir, nil
}
