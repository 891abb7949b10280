// Package template fills in the templates of CNI configurations: the part of Go's template language that such a
// template needs.
//
// The package text/template of Go is not used because it calls methods by names that only the running program knows:
// with it, the linker must keep every exported method of every type, 6 MB of podd. Only the network package calls it.
package template

import (
	"bytes"
	"fmt"
	"strconv"
	"text/template/parse"
)

// Data are the fields of a template by name: a string, or a []string.
type Data map[string]any

// Fill returns the text of a template. It may use fields ({{.PodCIDR}}), the variables of range, comments, if and
// range, with else. Other syntax of the language is an error that names the line. An unknown field is too, wherever in
// the template it is.
func Fill(name, text string, data Data) ([]byte, error) {
	tree := parse.New(name)
	tree.Mode = parse.SkipFuncCheck // check says it better
	if _, err := tree.Parse(text, "", "", map[string]*parse.Tree{}); err != nil {
		return nil, err
	}
	f := filler{tree: tree, data: data}
	if err := f.check(tree.Root); err != nil {
		return nil, err
	}
	if err := f.list(tree.Root); err != nil {
		return nil, err
	}
	return f.out.Bytes(), nil
}

// filler fills in one template.
type filler struct {
	tree *parse.Tree
	data Data
	out  bytes.Buffer
	// ranges is the number of ranges around the checked node.
	ranges int
	// dot is the element of the innermost range, nil outside of one.
	dot any
	// variables are those of the ranges around, the innermost last.
	variables []variable
}

type variable struct {
	name  string
	value any
}

func (f *filler) list(l *parse.ListNode) error {
	if l == nil { // no else
		return nil
	}
	for _, node := range l.Nodes {
		if err := f.node(node); err != nil {
			return err
		}
	}
	return nil
}

// node fills in a node that check accepts.
func (f *filler) node(node parse.Node) error {
	switch n := node.(type) {
	case *parse.TextNode:
		f.out.Write(n.Text)
	case *parse.ActionNode:
		return f.action(n)
	case *parse.IfNode:
		return f.choose(n)
	case *parse.RangeNode:
		return f.repeat(n)
	}
	return nil
}

// action writes a value.
func (f *filler) action(n *parse.ActionNode) error {
	switch v := f.value(n.Pipe).(type) {
	case string:
		f.out.WriteString(v)
	case int:
		f.out.WriteString(strconv.Itoa(v))
	default:
		return fmt.Errorf("%s is a list: use range", f.place(n))
	}
	return nil
}

func (f *filler) choose(n *parse.IfNode) error {
	if empty(f.value(n.Pipe)) {
		return f.list(n.ElseList)
	}
	return f.list(n.List)
}

func (f *filler) repeat(n *parse.RangeNode) error {
	elements, ok := f.value(n.Pipe).([]string)
	if !ok {
		return fmt.Errorf("%s is not a list: range needs one", f.place(n.Pipe))
	}
	if len(elements) == 0 {
		return f.list(n.ElseList)
	}
	outer, around := f.dot, len(f.variables)
	defer func() { f.dot, f.variables = outer, f.variables[:around] }()
	for i, element := range elements {
		f.dot = element
		values := []any{i, element} // of one variable: the element
		for j, declared := range n.Pipe.Decl {
			value := values[len(values)-len(n.Pipe.Decl)+j]
			f.variables = append(f.variables, variable{declared.Ident[0], value})
		}
		if err := f.list(n.List); err != nil {
			return err
		}
		f.variables = f.variables[:around]
	}
	return nil
}

// value returns a string, an int or a []string.
func (f *filler) value(p *parse.PipeNode) any {
	switch arg := p.Cmds[0].Args[0].(type) {
	case *parse.FieldNode:
		return f.data[arg.Ident[0]]
	case *parse.VariableNode:
		return f.variable(arg.Ident)
	}
	return f.dot
}

// variable returns the value of {{$name}}, and of {{$.Field}}, a field of the data also within a range.
func (f *filler) variable(path []string) any {
	if path[0] == "$" {
		return f.data[path[1]]
	}
	i := len(f.variables) - 1
	for f.variables[i].name != path[0] {
		i--
	}
	return f.variables[i].value
}

func empty(value any) bool {
	switch v := value.(type) {
	case string:
		return v == ""
	case int:
		return v == 0
	case []string:
		return len(v) == 0
	}
	return true
}
