package arch

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podd-project/podd/sandbox/budget"
	"github.com/podd-project/podd/streaming"
)

// TestBudgetsPage compares sandbox/budget/BUDGETS.md with the code: the shared budgets with the table that podd
// constructs, the limits with the constants in the source.
func TestBudgetsPage(t *testing.T) {
	pools, s := map[string]budget.Usage{}, streaming.DefaultConfig()
	for _, u := range budget.New(s.MaxSessions, s.MaxSessionsPerPod, streaming.MaxPending).Usages() {
		pools[u.Name] = u
	}
	tests := parseTests(t)
	constants := 0
	for _, cells := range tableRows(t, "../../sandbox/budget/BUDGETS.md") {
		switch len(cells) {
		case 5:
			u, ok := pools[cells[0]]
			if !ok {
				t.Errorf("shared budget %q is on the page, want it in budget.New", cells[0])
			}
			delete(pools, cells[0])
			checkAmount(t, cells[0], cells[1], u.Limit)
			checkAmount(t, cells[0]+" per pod", cells[2], u.PerOwner)
			checkTests(t, tests, testReference, cells[0], cells[4])
		case 3:
			constants++
			checkAmount(t, cells[0], cells[1], valueOf(t, strings.Trim(cells[0], "`")))
		}
	}
	for name := range maps.Keys(pools) {
		t.Errorf("shared budget %q is not on the page, want a row", name)
	}
	if constants < 20 {
		t.Errorf("the page lists %d constants, want its second table", constants)
	}
}

// tableRows returns the cells of each row of the page's tables, without headers.
func tableRows(t *testing.T, page string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(lines[i+1], "|---") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}

// checkTests looks for the tests that a cell of a row names, at least one.
func checkTests(t *testing.T, tests testFiles, reference *regexp.Regexp, row, cell string) {
	t.Helper()
	references := reference.FindAllStringSubmatch(cell, -1)
	if len(references) == 0 {
		t.Errorf("row %q: proved by %q, want `folder.Test/subtest`", row, cell)
	}
	for _, r := range references {
		if err := tests.check(r[1], r[2], r[3]); err != nil {
			t.Errorf("row %q: %s: %v", row, r[0], err)
		}
	}
}

// amount is a number with an optional unit, as written on the page.
var amount = regexp.MustCompile(`^(\d+)( KiB| MiB| ms| s| min)?$`)

func checkAmount(t *testing.T, what, text string, want int64) {
	t.Helper()
	units := map[string]int64{
		"": 1, " KiB": 1 << 10, " MiB": 1 << 20,
		" ms": int64(time.Millisecond), " s": int64(time.Second), " min": int64(time.Minute),
	}
	if text == "" && want == 0 {
		return
	}
	m := amount.FindStringSubmatch(text)
	if m == nil {
		t.Errorf("%s: limit %q, want a number with KiB, MiB, ms, s, min or nothing", what, text)
		return
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || n*units[m[2]] != want {
		t.Errorf("%s: the page says %s, the code has %d", what, text, want)
	}
}

// valueOf returns the value of a constant, named by folder and name: sandbox/forward.dialTimeout.
func valueOf(t *testing.T, name string) int64 {
	t.Helper()
	dir, ident, _ := strings.Cut(name, ".")
	files, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	consts := map[string]ast.Expr{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == len(spec.Names) {
				for i, id := range spec.Names {
					consts[id.Name] = spec.Values[i]
				}
			}
			return true
		})
	}
	value, err := evaluate(consts[ident], consts)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return 0
	}
	n, _ := constant.Int64Val(value)
	return n
}

// evaluate computes a constant expression of numbers, other constants of the package and time.Second and the like.
func evaluate(e ast.Expr, consts map[string]ast.Expr) (constant.Value, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0), nil
	case *ast.ParenExpr:
		return evaluate(e.X, consts)
	case *ast.Ident:
		if next, ok := consts[e.Name]; ok {
			return evaluate(next, consts)
		}
	case *ast.SelectorExpr:
		units := map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute}
		if unit, ok := units[e.Sel.Name]; ok {
			return constant.MakeInt64(int64(unit)), nil
		}
	case *ast.BinaryExpr:
		x, err := evaluate(e.X, consts)
		if err != nil {
			return nil, err
		}
		y, err := evaluate(e.Y, consts)
		if err != nil {
			return nil, err
		}
		if e.Op == token.SHL {
			bits, _ := constant.Uint64Val(y)
			return constant.Shift(x, token.SHL, uint(bits)), nil
		}
		return constant.BinaryOp(x, e.Op, y), nil
	}
	return nil, fmt.Errorf("no constant in the source, or an expression that this test does not compute: %T", e)
}
