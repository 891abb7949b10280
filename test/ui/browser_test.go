package ui

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience bounds every wait for the page. It is long because the machine is shared with other tests.
const patience = 30 * time.Second

// startUI runs podd ui until the end of the test and returns the address that it prints.
func startUI(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("bin/podd", append([]string{"ui"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT) // it may have failed, which Wait tells
		if err := cmd.Wait(); err != nil {
			t.Errorf("podd ui ended with %v, want success after SIGINT", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("podd ui printed %q, %v, want an address", line, err)
	}
	return strings.TrimSpace(line)
}

// startBrowser starts Chromium and returns the context of its tabs.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	program, err := filepath.Abs("bin/chromium")
	if err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.UserDataDir("/tmp/profile"), chromedp.WindowSize(1200, 800), chromedp.WSURLReadTimeout(patience))
	ctx, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	ctx, end = chromedp.NewContext(ctx)
	t.Cleanup(end)
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	return ctx
}

// tab is one tab of the browser, and what it did.
type tab struct {
	ctx context.Context

	mu sync.Mutex // guards the fields below
	// requests are the URLs that the tab asked for, loaded the bytes that it got of each.
	requests map[network.RequestID]string
	loaded   map[string]float64
	// complaints are violations of the policy, exceptions and other messages of the browser.
	complaints []string
}

// view is a tab in a test or subtest.
type view struct {
	*testing.T
	*tab
}

// open opens a tab at an address.
func open(t *testing.T, browser context.Context, address string) *view {
	t.Helper()
	ctx, end := chromedp.NewContext(browser)
	t.Cleanup(end)
	v := &view{t, &tab{ctx: ctx, requests: map[network.RequestID]string{}, loaded: map[string]float64{}}}
	if err := chromedp.Listen(ctx, v.observe); err != nil {
		t.Fatal(err)
	}
	v.do(chromedp.Navigate(address))
	return v
}

// Run runs a subtest on the tab.
func (v *view) Run(name string, f func(v *view)) {
	v.Helper()
	v.T.Run(name, func(t *testing.T) { f(&view{t, v.tab}) })
}

func (p *tab) observe(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.requests[e.RequestID] = e.Request.URL
	case *network.EventLoadingFinished:
		p.loaded[p.requests[e.RequestID]] = e.EncodedDataLength
	case *cdplog.EventEntryAdded:
		p.complaints = append(p.complaints, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
	case *runtime.EventExceptionThrown:
		p.complaints = append(p.complaints, (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
	}
}

func (v *view) do(action chromedp.Action[chromedp.Void]) {
	v.Helper()
	result(v, action)
}

// result returns the value of an action.
func result[T any](v *view, action chromedp.Action[T]) T {
	v.Helper()
	ctx, end := context.WithTimeout(v.ctx, patience)
	defer end()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		v.Fatal(err)
	}
	return value
}

// keys presses keys.
func (v *view) keys(keys ...string) {
	v.Helper()
	for _, key := range keys {
		v.do(chromedp.KeyEvent(key))
	}
}

// text returns the value of an expression, or of its promise, as text.
func (v *view) text(expression string) string {
	v.Helper()
	return result(v, chromedp.Evaluate[string]("Promise.resolve("+expression+").then(String)", chromedp.EvalAwaitPromise))
}

// await waits until an expression is true.
func (v *view) await(condition string) {
	v.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if v.text(condition) == "true" {
			return
		}
		if time.Now().After(deadline) {
			v.Fatalf("waited %v for %s; the page says:\n%.3000s\n%s", patience, condition,
				v.text("document.body.innerText"), v.troubles())
		}
	}
}

// troubles returns what the browser complained of, and what it asked for and did not get.
func (v *view) troubles() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	lines := slices.Clone(v.complaints)
	for _, url := range v.requests {
		if _, ok := v.loaded[url]; !ok {
			lines = append(lines, "no answer: "+url)
		}
	}
	return strings.Join(lines, "\n")
}

// want fails the test unless an expression has the value.
func (v *view) want(expression, want string) {
	v.Helper()
	if got := v.text(expression); got != want {
		v.Errorf("%s = %q, want %q", expression, got, want)
	}
}

// screenshot writes a picture of the tab, in dark or light colours.
func (v *view) screenshot(name, scheme string) {
	v.Helper()
	v.colours(scheme)
	png := result(v, chromedp.CaptureScreenshot())
	v.colours("")
	path := filepath.Join(*screenshots, name+".png")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		v.Fatal(err)
	}
	if err := os.WriteFile(path, png, 0o644); err != nil {
		v.Fatal(err)
	}
}

// resize sets the size of the tab in CSS pixels.
func (v *view) resize(width, height int64) {
	v.Helper()
	ctx, end := context.WithTimeout(v.ctx, patience)
	defer end()
	_, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1,
	})
	if err != nil {
		v.Fatal(err)
	}
}

// colours sets what the user prefers, light or dark.
func (v *view) colours(scheme string) {
	v.Helper()
	ctx, end := context.WithTimeout(v.ctx, patience)
	defer end()
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		v.Fatal(err)
	}
}
