package template

import (
	"bytes"
	"os"
	"strings"
	"testing"
	gotemplate "text/template"
)

var data = Data{"PodCIDR": "10.1.0.0/16", "PodCIDRRanges": []string{"10.1.0.0/16", "fd00::/64"}, "Routes": []string{}}

// TestFillLikeGo: the result is that of Go's own package.
func TestFillLikeGo(t *testing.T) {
	shipped, err := os.ReadFile("../../contrib/kubernetes/podd-cni.template")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		string(shipped), "", "text", "{{/* only a comment */}}", "a {{.PodCIDR}}\n", "a {{- .PodCIDR -}} b", "{{$.PodCIDR}}",
		`{{range $i, $r := .PodCIDRRanges}}{{if $i}}, {{end}}{{$i}} "{{$r}}"{{end}}`,
		`{{range $r := .PodCIDRRanges}}{{$r}};{{end}}`, `{{range .PodCIDRRanges}}{{.}} of {{$.PodCIDR}};{{end}}`,
		`{{range .Routes}}{{.}}{{else}}none{{end}}`, `{{range .Routes}}{{.}}{{end}}`,
		`{{range $a := .PodCIDRRanges}}{{range $i, $a := $.PodCIDRRanges}}{{$a}}{{.}}{{$i}}{{end}}{{$a}}{{.}} {{end}}`,
		`{{if .Routes}}routes{{else if .PodCIDR}}range{{else}}none{{end}}`, `{{if .Routes}}routes{{end}}`,
		`{{range .PodCIDRRanges}}{{if .}}x{{end}}{{end}}{{.PodCIDR}}`,
	} {
		var want bytes.Buffer
		if err := gotemplate.Must(gotemplate.New("t").Parse(text)).Execute(&want, data); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got, err := Fill("t", text, data); err != nil || string(got) != want.String() {
			t.Errorf("Fill(%s) = %q, %v, want %q", text, got, err, want.String())
		}
	}
}

func TestFillErrors(t *testing.T) {
	const more = "may use fields, variables of range, if and range"
	for text, want := range map[string]string{
		"x\n{{":                          "unclosed action",
		"x\n {{.Node}}":                  "t:2:3: .Node: unknown field",
		"{{.PodCIDR.Length}}":            "unknown field",
		"{{range .Routes}}{{end}}{{$r}}": "undefined variable",
		"{{range .PodCIDRRanges}}{{.PodCIDR}}{{end}}":         "unknown field",
		"{{range $r := .PodCIDRRanges}}{{$r.PodCIDR}}{{end}}": "unknown field",
		"{{.PodCIDRRanges}}":                                  "is a list",
		"{{range .PodCIDR}}{{end}}":                           "is not a list",
		"{{.}}":                                               more,
		"{{$}}":                                               "unknown field",
		`{{"text"}}`:                                          more,
		"{{$x := .PodCIDR}}{{$x}}":                            more,
		"{{if $x := .PodCIDR}}{{$x}}{{end}}":                  more,
		"{{range $r := .PodCIDRRanges}}{{range $r = $.PodCIDRRanges}}{{end}}{{end}}": more,
		"{{with .PodCIDR}}{{.}}{{end}}":                                              more,
		"{{len .Routes}}":                                                            more,
		"{{.PodCIDR | .Routes}}":                                                     more,
		`{{define "x"}}{{end}}{{template "x"}}`:                                      more,
		"{{range .PodCIDRRanges}}{{break}}{{end}}":                                   more,
		"{{if .Nothing}}{{end}}":                                                     "unknown field",
		"{{range .Nothing}}{{end}}":                                                  "unknown field",
		"{{if .Routes}}{{.Nothing}}{{end}}":                                          "unknown field",
		"{{range .Routes}}{{with .}}{{end}}{{end}}":                                  more,
		"{{range .Routes}}{{.PodCIDR}}{{end}}":                                       "unknown field",
		"{{if .Routes}}{{else}}{{index .PodCIDRRanges 0}}{{end}}":                    more,
		"{{if .PodCIDR}}{{.Nothing}}{{end}}":                                         "unknown field",
	} {
		if got, err := Fill("t", text, data); err == nil || !strings.Contains(err.Error(), want) || got != nil {
			t.Errorf("Fill(%q) = %q, %v, want an error with %q", text, got, err, want)
		}
	}
}
