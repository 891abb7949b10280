package template

import (
	"fmt"
	"text/template/parse"
)

// check returns an error for syntax that Fill does not support, even in parts that these data leave out: a node with
// one address family must not accept a template that fails on a node with two.
func (f *filler) check(l *parse.ListNode) error {
	if l == nil { // no else
		return nil
	}
	for _, node := range l.Nodes {
		if err := f.checkNode(node); err != nil {
			return err
		}
	}
	return nil
}

func (f *filler) checkNode(node parse.Node) error {
	switch n := node.(type) {
	case *parse.TextNode:
		return nil
	case *parse.ActionNode:
		return f.checkPipe(n.Pipe, false)
	case *parse.IfNode:
		return f.checkBranch(&n.BranchNode, false)
	case *parse.RangeNode:
		return f.checkBranch(&n.BranchNode, true)
	}
	return f.unknown(node)
}

func (f *filler) checkBranch(n *parse.BranchNode, repeats bool) error {
	if err := f.checkPipe(n.Pipe, repeats); err != nil {
		return err
	}
	if repeats {
		f.ranges++
	}
	err := f.check(n.List)
	if repeats {
		f.ranges--
	}
	if err != nil {
		return err
	}
	return f.check(n.ElseList)
}

// checkPipe accepts one field, variable or dot, and the variables of a range if declares is true.
func (f *filler) checkPipe(p *parse.PipeNode, declares bool) error {
	if len(p.Cmds) != 1 || len(p.Cmds[0].Args) != 1 || p.IsAssign || len(p.Decl) > 0 && !declares {
		return f.unknown(p)
	}
	switch arg := p.Cmds[0].Args[0].(type) {
	case *parse.FieldNode: // of the data, not of an element of a range
		return f.checkField(arg, arg.Ident, f.ranges == 0)
	case *parse.VariableNode: // the parser knows those that are declared, and $, the data
		if arg.Ident[0] == "$" || len(arg.Ident) > 1 {
			return f.checkField(arg, arg.Ident[1:], arg.Ident[0] == "$")
		}
		return nil
	case *parse.DotNode:
		if f.ranges > 0 {
			return nil
		}
	}
	return f.unknown(p)
}

// checkField accepts the path of a field of the data.
func (f *filler) checkField(n parse.Node, path []string, ofData bool) error {
	if len(path) == 1 && ofData {
		if _, ok := f.data[path[0]]; ok {
			return nil
		}
	}
	return fmt.Errorf("%s: unknown field", f.place(n))
}

// unknown is the error for syntax that Fill does not support.
func (f *filler) unknown(n parse.Node) error {
	return fmt.Errorf("%s: a template may use fields, variables of range, if and range, and nothing else", f.place(n))
}

func (f *filler) place(n parse.Node) string {
	location, context := f.tree.ErrorContext(n)
	return location + ": " + context
}
