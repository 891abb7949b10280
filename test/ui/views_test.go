package ui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const (
	// maxPage is the size of all files of the page, in bytes.
	maxPage = 200_000
	// maxWork is the part of the time that the page may take of the browser's thread while it shows all pods.
	maxWork = 0.25
)

// eachView runs a subtest on each view of the page, by its name.
func (v *view) eachView(f func(v *view, name string)) {
	v.Helper()
	v.keys("2")
	v.await(`document.querySelectorAll("table[aria-label=Pods] a").length > 0`)
	pod := v.text(`document.querySelector("table[aria-label=Pods] a").hash`)
	for hash, ready := range map[string]string{
		"#now":    `document.querySelectorAll("h2").length > 1`,
		"#pods":   `document.querySelectorAll("table[aria-label=Pods] tbody tr").length === ` + strconv.Itoa(allPods+1),
		"#starts": `document.querySelectorAll(".runs a").length === 100`,
		"#disk":   `document.querySelectorAll(".cell").length > 0`,
		pod:       `document.querySelectorAll(".operation").length > 0`,
	} {
		v.text(`location.hash = ` + strconv.Quote(hash))
		v.await(ready)
		name, _, _ := strings.Cut(strings.TrimPrefix(hash, "#"), "/")
		v.Run(name, func(v *view) { f(v, name) })
	}
}

// testSizes: on a phone, a tablet and a desktop each view fits the width.
func testSizes(v *view) {
	defer v.resize(1200, 800)
	for _, size := range []struct{ width, height int64 }{{390, 844}, {820, 1180}, {1440, 900}} {
		v.Run(strconv.FormatInt(size.width, 10), func(v *view) {
			v.resize(size.width, size.height)
			v.eachView(func(v *view, name string) {
				if got := v.text(tooWide); got != "" {
					v.Errorf("these reach beyond the right edge at %d:\n%s", size.width, got)
				}
				v.screenshot(fmt.Sprintf("sizes/%s-%d", name, size.width), "light")
			})
		})
	}
}

// tooWide returns by how much the page would have to be scrolled sideways, and the elements that are the reason.
const tooWide = `(() => {
	const {scrollWidth, clientWidth} = document.documentElement;
	if (scrollWidth <= clientWidth) return "";
	const right = (e) => e.getBoundingClientRect().right;
	return scrollWidth + " of " + clientWidth + "\n" +
		[...document.querySelectorAll("body *")].filter((e) => right(e) > clientWidth).slice(0, 10).map(
		(e) => e.tagName + "." + e.className + " " + right(e) + " " + e.textContent.slice(0, 40)).join("\n");
})()`

// testPod: the view of a pod has its start and the stages of each operation.
func testPod(v *view) {
	v.keys("2")
	v.await(`document.querySelectorAll("table[aria-label=Pods] a").length > 0`)
	v.text(`[...document.querySelectorAll("table[aria-label=Pods] a")].find(a => a.textContent === "shop/web-0").click()`)
	v.await(`document.querySelectorAll(".operation").length === 3`)
	v.want(`[...document.querySelectorAll(".chart[aria-label=Start] .label")].map(e => e.textContent)`,
		"RunPodSandbox,CreateContainer main,StartContainer main")
	v.await(`[...document.querySelectorAll("dd")].some(e => e.textContent.startsWith("10."))`)
	v.want(`document.querySelector("table[aria-label=Containers] td:nth-child(3)").textContent`, busybox)
	v.want(`document.querySelectorAll(".operation:first-child .track i.network").length`, "1")
	v.screenshot("pod", "light")
	v.keys(kb.Escape)
	v.await(`location.hash === "#pods"`)
}

// testStarts: the start that waited for its CNI plugin is the slowest, and the network is named as the reason.
func testStarts(v *view) {
	v.keys("3")
	v.await(`document.querySelectorAll(".runs a").length === 100`)
	v.want(`document.querySelector(".finding").textContent.startsWith("100 runs: p50 ")`, "true")
	network := `[...document.querySelectorAll("table[aria-label='Time by part'] tr")].find(
		tr => tr.cells[0].textContent === "network (CNI)")`
	v.want(network+`.cells.length`, "6")
	v.screenshot("starts", "dark")
}

// testDisk: images and pods have cells that fill the treemap without overlap.
func testDisk(v *view) {
	v.keys("4")
	v.await(`document.querySelectorAll(".cell.pod").length > 5 && document.querySelectorAll(".cell.image").length > 0`)
	const area = `(() => {
		const box = document.querySelector(".treemap").getBoundingClientRect();
		const cells = [...document.querySelectorAll(".cell")].map(c => c.getBoundingClientRect());
		const inside = cells.every(c => c.left >= box.left - 1 && c.right <= box.right + 1 &&
			c.top >= box.top - 1 && c.bottom <= box.bottom + 1);
		const sum = cells.reduce((s, c) => s + c.width * c.height, 0);
		return inside && Math.abs(sum / (box.width * box.height) - 1) < 0.02;
	})()`
	v.want(area, "true")
	v.screenshot("disk", "light")
}

// testLightWork: the page leaves the browser idle while it shows all pods.
func testLightWork(v *view) {
	v.keys("2")
	v.await(`document.querySelectorAll("table[aria-label=Pods] tbody tr").length > 0`)
	const long = 10 * time.Second
	v.text(`new PerformanceObserver(list => {
		for (const task of list.getEntries()) window.busy = (window.busy ?? 0) + task.duration;
	}).observe({entryTypes: ["longtask"]})`)
	time.Sleep(long)
	busy := result(v, chromedp.Evaluate[float64](`window.busy ?? 0`)) // milliseconds in tasks of more than 50
	v.Logf("last answers of the daemon: %s", v.text(`performance.getEntriesByType("resource").filter(
		e => e.name.includes("api/status")).slice(-4).map(
		e => e.duration.toFixed() + " ms " + e.decodedBodySize + " bytes")`))
	v.Logf("long tasks take %.1f %% of the time", busy/float64(long.Milliseconds())*100)
	if busy > maxWork*float64(long.Milliseconds()) {
		v.Errorf("long tasks took %.0f ms of %v, want at most %.0f %%", busy, long, maxWork*100)
	}
}

// testQuiet: the tab asked nobody but podd ui, violated no policy, threw no exception, and loaded little.
func testQuiet(v *view, address string) {
	base, _, _ := strings.Cut(address, "#")
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.requests) < 10 {
		v.Errorf("%d requests were seen, want those of the page", len(v.requests))
	}
	for _, url := range v.requests {
		if !strings.HasPrefix(url, base) {
			v.Errorf("the page asked %s, want only %s", url, base)
		}
	}
	if len(v.complaints) > 0 {
		v.Errorf("the browser complains:\n%s", strings.Join(v.complaints, "\n"))
	}
	var size float64
	for url, bytes := range v.loaded {
		if !strings.Contains(url, "/api/") {
			size += bytes
		}
	}
	v.Logf("the page has %.0f KiB", size/1024)
	if size < 10<<10 || size > maxPage {
		v.Errorf("the page has %.0f bytes, want at most %d", size, maxPage)
	}
}
