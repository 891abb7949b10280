package ui

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// texts are what others may put into names and messages. None reaches a daemon's answer as it is here, because podd
// checks names: the page must be safe if that check fails, too.
var texts = []string{
	`<img src=x onerror="window.pwned=1">`,
	`<script>window.pwned=1</script>`,
	`"><svg onload=window.pwned=1>`,
	`javascript:window.pwned=1`,
	"\u202e\u2066reversed",
	`__proto__`, `constructor`,
	strings.Repeat("w", 20000),
	"", "\x00\x1b[2J\n",
}

// TestHostile: whatever the daemon's answers say is shown as text. The page stays whole and asks nobody else.
func TestHostile(t *testing.T) {
	address := startUI(t, "--run", serveHostile(t))
	page := open(t, startBrowser(t), address)
	page.await(`document.querySelectorAll(".problems li").length === ` + strconv.Itoa(len(texts)))
	for _, to := range []string{"#pods", "#starts", "#disk", "#pod/x", "#pod/%", "#__proto__", "#constructor/x", "#now"} {
		page.text(`location.hash = "` + to + `"`)
		page.await(`document.querySelectorAll("main section").length > 0`)
		page.text(`new Promise(done => setTimeout(done, 1000))`) // until the view has its data
		page.want(`window.pwned`, "undefined")
		page.want(`document.querySelectorAll("main :is(img, script, iframe, object, embed, form, link, style)").length`, "0")
		page.want(`[...document.querySelectorAll("main a[href]")].every(a => a.getAttribute("href").startsWith("#"))`, "true")
		if got := page.text(tooWide); got != "" {
			t.Errorf("these reach beyond the right edge of %s:\n%s", to, got)
		}
		page.want(`document.querySelector("#failure").textContent`, "")
	}
	page.text(`location.hash = "#pods"`)
	page.await(`[...document.querySelectorAll("td.name")].some(e => e.textContent === ` + quote(texts[0]) + `)`)
	page.Run("nothing from elsewhere", func(v *view) { testQuiet(v, address) })
	page.Run("policy", testPolicy)
}

// testPolicy: the browser itself refuses what the page's scripts never do.
func testPolicy(v *view) {
	v.text(`window.violations = 0, addEventListener("securitypolicyviolation", () => window.violations++)`)
	for _, attempt := range []string{
		`document.body.innerHTML = "<b>x</b>"`,
		`eval("1")`,
		`new Function("return 1")()`,
		`document.body.append(Object.assign(document.createElement("script"), {text: "window.pwned=1"}))`,
	} {
		// in a task of its own, because what DevTools evaluate may use eval
		v.want(`new Promise(end => setTimeout(() => { try { `+attempt+`; end("done") } catch { end("refused") } }))`,
			"refused")
	}
	v.want("window.pwned", "undefined")
	for _, url := range []string{"http://127.0.0.1:1/", "https://example.org/"} { // neither is connected to
		v.want(`fetch("`+url+`").catch(e => e.message)`, "Failed to fetch")
	}
	v.await(`violations >= 6`)
}

func quote(text string) string {
	out, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string
	}
	return string(out)
}

// serveHostile serves an admin API with hostile answers in a run directory, until the end of the test.
func serveHostile(t *testing.T) string {
	t.Helper()
	run, err := os.MkdirTemp("", "podd-ui-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	l, err := net.Listen("unix", filepath.Join(run, "admin.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	mux := http.NewServeMux()
	for path, answer := range map[string]object{
		"status": hostileStatus(), "history": hostileHistory(), "disk": hostileDisk(), "usage": hostileUsage(),
		"log": {"text": strings.Join(texts, "\n")}, "log-level": {},
	} {
		mux.HandleFunc("GET /v1/"+path, func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(answer) // the client is gone
		})
	}
	go func() { _ = http.Serve(l, mux) }() // until l is closed
	return run
}

// object is an answer, or a part of one.
type object map[string]any

func hostileStatus() object {
	pods := []object{}
	problems := []object{}
	for i, text := range texts {
		containers := []object{{
			"id": text, "name": text, "state": text, "image": text, "reason": text, "message": text,
		}}
		pods = append(pods,
			object{"id": fmt.Sprint(text, i), "name": text, "state": text, "created": text, "containers": containers},
			object{"id": "same", "name": text, "state": "ready", "created": "2026-01-01T00:00:00Z", "containers": nil})
		problems = append(problems, object{
			"type": text, "message": text, "kind": text, "what": text, "id": text, "error": text, "path": text,
			"text": text, "pod": text, "name": text, "next": text,
		})
	}
	return object{
		"version": texts[0], "pods": pods, "operations": hostileOperations(), "conditions": problems, "problems": problems,
		"configuration": object{"error": texts[1]}, "troubles": problems,
		"pulls": []object{
			{"ref": texts[0], "stage": texts[1], "bytesDone": 1e300, "bytesTotal": -1, "layers": nil, "startedAt": "x"},
			{"ref": texts[7], "stage": texts[4], "bytesDone": 5, "bytesTotal": 2, "layers": []object{{"state": texts[0]}}},
		},
		"sessions": []object{{"kind": texts[0], "pod": texts[7], "container": "", "started": texts[2], "idle_seconds": -5}},
		"nri":      object{"down": map[string]string{texts[0]: texts[1], "__proto__": texts[2]}},
		"budgets":  []object{{"name": texts[0], "unit": texts[1], "refused": 1e9, "limit": -1, "peak": 5}},
	}
}

func hostileOperations() []object {
	var out []object
	for i, text := range texts {
		out = append(out, object{
			"verb": "RunPodSandbox", "pod": fmt.Sprint(text, i), "container": text, "name": text,
			"began": "2026-01-01T00:00:00Z", "took": "9999h0m0.1s", "error": text, "outcome": "ok",
			"stages": []object{{"name": text, "after": text, "took": "1h"}, {"name": "network", "after": "-5s", "took": text}},
		}, object{"verb": text, "pod": text, "name": text, "began": text, "took": text, "outcome": text, "stages": nil})
	}
	return out
}

func hostileHistory() object { return object{"items": hostileOperations(), "damage": texts[0]} }

func hostileUsage() object {
	containers := []object{{"id": texts[2]}}
	return object{"items": []object{
		{"id": "same", "cpu_nanocores": texts[0], "memory_bytes": texts[1], "containers": containers}, {"id": texts[5]},
	}}
}

func hostileDisk() object {
	images, containers := []object{}, []object{}
	for i, text := range texts {
		images = append(images, object{
			"id": fmt.Sprint(text, i), "names": []string{text}, "bytes": 1 << 40, "unique": i * 1000, "used_by": -1,
		})
		containers = append(containers, object{"id": text, "pod": text, "name": text, "bytes": i * 500, "inodes": 1})
	}
	images = append(images, object{"id": "x", "names": nil, "bytes": 5, "unique": 5, "used_by": 0})
	return object{
		"free": texts[0], "size": texts[1],
		"images": object{"items": images, "omitted": 3}, "layers": 1, "containers": object{"items": containers},
	}
}
