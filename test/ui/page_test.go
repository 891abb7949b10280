// Package ui opens the page of podd ui in a real browser.
package ui

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var screenshots = flag.String("screenshots", "bin/ui", "directory to which TestPage writes pictures of the page")

func TestMain(m *testing.M) {
	flag.Parse()
	if err := os.Chdir("../.."); err != nil { // package daemon looks for podd's repository
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestPage: the page of a node with 500 pods, by keyboard only, as an administrator reads it.
func TestPage(t *testing.T) {
	n := startNode(t)
	n.fill()
	address := startUI(t, "--config", n.Path("podd.toml"))
	browser := startBrowser(t)

	page := open(t, browser, address)
	page.Run("login", func(v *view) { testLogin(v, browser, address) })
	page.Run("stuck", func(v *view) { testStuck(v, n) })
	page.Run("pull", func(v *view) { testPull(v, n) })
	page.Run("pods", testPods)
	page.Run("keyboard", testKeyboard)
	page.Run("pod", testPod)
	page.Run("starts", testStarts)
	page.Run("disk", testDisk)
	page.Run("access", testAccess)
	page.Run("sizes", testSizes)
	page.Run("light work", testLightWork)
	page.Run("nothing from elsewhere", func(v *view) { testQuiet(v, address) })
}

// testLogin: the address opens one tab, once, and does not stay in the history of the browser.
func testLogin(v *view, browser context.Context, address string) {
	v.await(`document.querySelector("#summary").textContent.includes("pod")`)
	v.want("location.hash", "#now")
	base, _, _ := strings.Cut(address, "#")
	for what, to := range map[string]string{"used before": address, "not logged in": base} {
		other := open(v.T, browser, to)
		other.await(`document.querySelector("#failure").textContent.includes("` + what + `")`)
		other.want(`document.querySelector("#summary").textContent`, "")
	}
	v.do(chromedp.Reload())
	v.await(`document.querySelector("#summary").textContent.includes("pod")`) // the key survives
}

// testStuck: an operation that waits for its CNI plugin is a problem, with the stage.
func testStuck(v *view, n *node) {
	ended := make(chan error, 1)
	go func() { ended <- n.run(v.Context(), "shop", stuckPod, 0) }()
	v.keys("1")
	v.await(`[...document.querySelectorAll(".problems span")].some(
		e => e.textContent.startsWith("RunPodSandbox is stuck in network for "))`)
	v.want(`document.querySelector("tr.stuck .stage.network").textContent`, "network")
	v.screenshot("now", "light")
	v.keys("2")
	v.await(chip("Creating 1"))
	v.keys("1")
	if err := errors.Join(n.Gates.Release("bridge-ADD"), <-ended); err != nil {
		v.Error(err)
	}
	v.await(`document.querySelector("tr.stuck") === null`)
}

// testPull: a pull from a slow registry is a bar.
func testPull(v *view, n *node) {
	ended := make(chan error, 1)
	go func() {
		_, err := n.Images.PullImage(v.Context(), &cri.PullImageRequest{
			Image: &cri.ImageSpec{Image: "registry.k8s.io/trickle/pause:3.10"},
		})
		ended <- err
	}()
	v.keys("1")
	v.await(`document.querySelector("progress")?.position > 0 && document.querySelector("progress").position < 1`)
	n.registry.Release()
	if err := <-ended; err != nil {
		v.Error(err)
	}
	v.await(`document.querySelector("progress") === null`)
}

// chip is a condition: the button of a filter has this text.
func chip(text string) string {
	return `[...document.querySelectorAll(".chips button")].some(b => b.textContent === "` + text + `")`
}

// testPods: all pods are in the list and counted by state; both filters select, and a column sorts.
func testPods(v *view) {
	v.keys("2")
	rows := `document.querySelectorAll("table[aria-label=Pods] tbody tr").length`
	v.await(rows + ` === ` + strconv.Itoa(allPods+1))
	v.await(chip("All " + strconv.Itoa(allPods+1)))
	v.await(chip("Failing 0"))
	memory := `[...document.querySelectorAll("th button")].find(b => b.textContent === "Memory")`
	v.text(memory + `.click()`)
	v.await(`document.querySelector("table[aria-label=Pods] tbody tr").cells[4].textContent.endsWith("iB")`)
	v.want(memory+`.parentElement.getAttribute("aria-sort")`, "descending")
	v.screenshot("pods", "light")
	v.keys("/", "q", "u", "e", "u", "e", "-", "1", "0")
	v.await(rows + ` === 3`) // queue-10, queue-101, queue-108
	for range len("queue-10") {
		v.keys(kb.Backspace)
	}
	v.await(rows + ` === ` + strconv.Itoa(allPods+1))
}

// testKeyboard: every part of the page is reached by keys, and seen to be.
func testKeyboard(v *view) {
	focus := `document.activeElement.tagName`
	v.keys(kb.Escape) // leaves the filter
	v.keys("1")
	v.await(`document.querySelector("nav [aria-current]").textContent === "Now"`)
	v.keys("2")
	v.await(`document.querySelectorAll("table[aria-label=Pods] tbody tr").length === ` + strconv.Itoa(allPods+1))
	v.want(focus, "MAIN")
	v.keys(kb.Tab)
	v.want(focus, "BUTTON")
	v.keys(kb.Tab)
	v.want(focus, "INPUT")
	v.keys(kb.Tab)
	v.want(focus+` + document.activeElement.textContent`, "BUTTONState")
	v.keys(kb.Tab)
	v.want(focus, "A")
	index := `[...document.querySelectorAll("table[aria-label=Pods] a")].indexOf(document.activeElement)`
	v.want(index, "0")
	v.keys(kb.ArrowDown, kb.ArrowDown)
	v.want(index, "2")
	v.keys(kb.End)
	v.want(index, strconv.Itoa(allPods))
	v.want(`getComputedStyle(document.activeElement).outlineStyle`, "solid")
	v.keys(kb.Enter)
	v.await(`location.hash.startsWith("#pod/") && document.querySelector("main h2").textContent.includes("/")`)
	v.keys(kb.Escape)
	v.await(`location.hash === "#pods"`)
	v.keys("3")
	v.await(`document.querySelectorAll(".runs a").length === 100`)
	v.keys(kb.Tab, kb.Tab)
	v.want(focus, "a")
	v.keys(kb.End)
	v.want(`document.querySelector(".note").textContent.includes("network (CNI)")`, "true")
	v.keys("4")
	v.await(`document.querySelectorAll(".cell").length > 0`)
	v.keys(kb.Tab)
	v.want(focus, "LI")
	v.want(`document.querySelector(".note").textContent.startsWith("image: ")`, "true")
}
