package ui

import (
	"os"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestSituations: whatever is wrong with a node is in the first screen of the page, on a desktop and on a phone, with
// its pod and its cause. A stopped daemon is the problem, and what was seen of it before is not shown as good.
func TestSituations(t *testing.T) {
	n := startNode(t)
	page := open(t, startBrowser(t), startUI(t, "--config", n.Path("podd.toml")))
	page.await(`document.querySelector(".fine")?.textContent.startsWith("Everything is fine: 0 running, 0 waiting, ")`)
	page.await(`document.title === document.querySelector("h1").textContent + ": no problems"`)
	page.Run("problems", func(v *view) { testSituations(v, n) })
	page.Run("pod", testFailedPod)
	page.Run("stopped", func(v *view) { testStopped(v, n) })
}

func testSituations(v *view, n *node) {
	n.must(n.fail("crash", "sh", "-c", "echo about to fail; exit 3"))
	n.must(n.fail("greedy", "sh", "-c", "x=x; while true; do x=$x$x$x$x; done"))
	if err := n.fail("typo", "nosuch"); err == nil {
		v.Error("the command nosuch was started, want an error")
	}
	missing := "registry.k8s.io/nosuch:v1"
	_, err := n.Images.PullImage(v.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: missing}})
	if err == nil {
		v.Error("an image that does not exist was pulled, want an error")
	}
	ended := make(chan error, 1)
	go func() { ended <- n.run(v.Context(), "shop", stuckPod, 0) }()
	defer func() { n.check(n.Gates.Release("bridge-ADD")); n.check(<-ended) }()
	for _, want := range [][2]string{
		{"shop/crash", "container main: Error, exit code 3"},
		{"shop/greedy", "container main: OOMKilled, exit code 137"},
		{"shop/typo", "container main: StartError, exit code 128: "},
		{"node", "image cannot be pulled: pull " + missing},
		{"shop/" + stuckPod, "RunPodSandbox is stuck in network for "},
	} {
		v.await(`[...document.querySelectorAll(".problems li")].some(({children: [name, text]}) =>
			name.textContent === ` + quote(want[0]) + ` && text.textContent.startsWith(` + quote(want[1]) + `))`)
	}
	v.want(`document.querySelector("#verdict").textContent`, "5 problems")
	v.want(`document.querySelectorAll(".problems a[href^='#pod/']").length`, "4")
	v.want(`document.querySelector(".fine").checkVisibility()`, "false")
	for _, size := range []struct {
		name          string
		width, height int64
	}{{"desktop", 1200, 800}, {"phone", 390, 844}} {
		v.resize(size.width, size.height)
		v.want(`[...document.querySelectorAll(".problems li")].every(
			li => li.getBoundingClientRect().bottom <= innerHeight)`, "true")
		for _, scheme := range []string{"light", "dark"} {
			v.screenshot("situations/problems-"+size.name+"-"+scheme, scheme)
		}
	}
	v.resize(1200, 800)
	v.keys("2")
	v.await(chip("Failing 4"))
	v.screenshot("situations/pods", "light")
	v.keys("1")
}

// fail runs a pod with a container that ends by itself.
func (n *node) fail(name string, command ...string) error {
	config := n.config("shop", name, cri.NamespaceMode_NODE)
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		return err
	}
	pod, err := n.Runtime.RunPodSandbox(n.Context(), &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		return err
	}
	return n.start(n.Context(), pod.PodSandboxId, config, command...)
}

// testFailedPod: the page of the pod says how its container ended, and has the end of its log.
func testFailedPod(v *view) {
	v.text(`[...document.querySelectorAll(".problems a")].find(a => a.textContent === "shop/crash").click()`)
	v.await(`document.querySelector("table[aria-label=Containers] td.bad")?.textContent.startsWith(
		"exited: Error, exit code 3, ")`)
	v.await(`document.querySelector("pre")?.textContent.endsWith(" about to fail")`)
	v.want(`document.querySelector("h2").textContent`, "shop/crash")
	v.screenshot("situations/pod", "light")
	v.keys("1")
}

// testStopped: nothing that the page says is good news any longer, in any view.
func testStopped(v *view, n *node) {
	n.must(n.Stop())
	v.await(`document.querySelector("main.old") !== null`)
	for _, key := range []string{"1", "2", "3", "4", "1"} {
		v.keys(key)
		time.Sleep(500 * time.Millisecond) // until the view would have asked
		got := v.text(`document.body.innerText`)
		if strings.Contains(got, "no problems") || strings.Contains(got, "is fine") {
			v.Errorf("view %s of a stopped podd says:\n%s", key, got)
		}
		v.want(`document.querySelector("#verdict").textContent`, "no answer")
		v.want(`document.querySelector("#failure").textContent.startsWith("podd does not answer, ")`, "true")
		v.want(`document.title.endsWith(": no answer")`, "true")
		v.want(`document.querySelector("main").className`, "old")
	}
	v.screenshot("situations/stopped", "light")
	n.must(n.Start(n.Context()))
	v.await(`document.querySelector("main.old") === null`)
}
