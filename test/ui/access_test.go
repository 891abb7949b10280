package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
)

// testAccess: a user who cannot see the page well, or at all, can use every view of it: names, roles and headings in
// the browser's accessibility tree, and the contrast of each text in light and in dark colours. With AXE, the path of
// axe.min.js, the rules of axe-core are applied too.
func testAccess(v *view) {
	v.eachView(func(v *view, _ string) {
		v.checkTree()
		for _, scheme := range []string{"light", "dark"} {
			v.colours(scheme)
			if got := v.text(lowContrast); got != "" {
				v.Errorf("texts without contrast in %s colours:\n%s", scheme, got)
			}
			v.axe(scheme)
		}
		v.colours("")
	})
}

// checkTree checks the accessibility tree: what can have the focus has a name and a role, there is one main part and
// one heading of the first level, and no level is left out.
func (v *view) checkTree() {
	v.Helper()
	ctx, end := context.WithTimeout(v.ctx, patience)
	defer end()
	tree, err := chromedp.Call(ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		v.Fatal(err)
	}
	roles := map[string]int{}
	var levels []int
	for _, node := range tree.Nodes {
		if node.Ignored {
			continue
		}
		role, name := plain(node.Role), plain(node.Name)
		roles[role]++
		if slices.Contains([]string{"generic", "none", "", "main", "RootWebArea"}, role) {
			if role == "RootWebArea" && name == "" || role == "generic" && property(node, "focusable") == "true" {
				v.Errorf("the document, or what can have the focus, has the role %s and the name %q", role, name)
			}
			continue
		}
		needsName := property(node, "focusable") == "true" ||
			slices.Contains([]string{"table", "navigation", "image", "progressbar", "heading", "link", "button"}, role)
		if needsName && strings.TrimSpace(name) == "" {
			v.Errorf("a %s has no name", role)
		}
		if role == "heading" {
			level, err := strconv.Atoi(property(node, "level"))
			if err != nil {
				v.Errorf("heading %q has the level %q", name, property(node, "level"))
			}
			levels = append(levels, level)
		}
	}
	if roles["main"] != 1 || roles["navigation"] != 1 || roles["heading"] < 2 || len(tree.Nodes) < 50 {
		v.Errorf("roles %v of %d nodes, want one main part, one navigation, and headings", roles, len(tree.Nodes))
	}
	for i, level := range levels {
		if i == 0 && level != 1 || i > 0 && (level == 1 || level > levels[i-1]+1) {
			v.Errorf("levels of the headings = %v, want the first level once and none left out", levels)
			break
		}
	}
}

// plain returns a value of the tree as text.
func plain(value *accessibility.Value) string {
	if value == nil || len(value.Value) == 0 {
		return ""
	}
	var text string
	if err := json.Unmarshal([]byte(value.Value), &text); err != nil {
		return string(value.Value) // a number or boolean
	}
	return text
}

func property(node *accessibility.Node, name string) string {
	for _, p := range node.Properties {
		if string(p.Name) == name {
			return plain(p.Value)
		}
	}
	return ""
}

// lowContrast returns the texts whose contrast with what is behind them is less than 4.5, or 3 for large ones: WCAG
// 2.2, 1.4.3.
const lowContrast = `(() => {
	const parse = (color) => color.match(/[\d.]+/g).map(Number);
	const over = (top, below) => {
		const a = top[3] ?? 1;
		return [0, 1, 2].map((i) => top[i] * a + below[i] * (1 - a));
	};
	const behind = (node) => {
		const color = parse(getComputedStyle(node).backgroundColor);
		if ((color[3] ?? 1) === 1) return color;
		return over(color, node.parentElement ? behind(node.parentElement) : [255, 255, 255]);
	};
	const luminance = (color) => {
		const [r, g, b] = color.map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const found = new Set();
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let text = texts.nextNode(); text; text = texts.nextNode()) {
		const node = text.parentElement, style = getComputedStyle(node);
		if (!text.data.trim() || !node.checkVisibility()) continue;
		const back = behind(node);
		const [a, b] = [luminance(over(parse(style.color), back)), luminance(back)].sort((x, y) => y - x);
		const size = parseFloat(style.fontSize), large = size >= 24 || size >= 18.66 && style.fontWeight >= 700;
		const ratio = (a + 0.05) / (b + 0.05);
		if (ratio < (large ? 3 : 4.5)) found.add(ratio.toFixed(2) + " " + (node.className || node.tagName) + " " + text.data);
	}
	return [...found].slice(0, 20).join("\n");
})()`

// axe applies the rules of axe-core, if the environment names it.
func (v *view) axe(scheme string) {
	v.Helper()
	path := os.Getenv("AXE")
	if path == "" {
		return
	}
	source, err := os.ReadFile(path)
	if err != nil {
		v.Fatal(err)
	}
	v.text(fmt.Sprintf("(() => { if (!window.axe) { %s } return true; })()", source))
	got := v.text(`axe.run().then((r) => JSON.stringify(r.violations.map(
		(x) => [x.id, x.impact, x.help, x.nodes.length, x.nodes[0].html.slice(0, 200)]), null, 1))`)
	v.Logf("axe-core in %s colours: %s", scheme, got)
	if got != "[]" {
		v.Errorf("axe-core finds violations in %s colours: %s", scheme, got)
	}
}
