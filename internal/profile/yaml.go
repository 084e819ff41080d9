package profile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// DecodeYAML reads a YAML document into a value, and refuses keys that it does not know and aliases that the decoder takes for
// null. An error is one line and names the line of the document.
func DecodeYAML(text []byte, into any) error {
	text = Plain(text)
	if _, line, err := Tokens(text); err != nil {
		return fmt.Errorf("line %d: %w", line, err)
	}
	if err := checkAliases(text); err != nil {
		return err
	}
	switch err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(into); {
	case errors.Is(err, io.EOF):
		return errors.New("it is empty; write what it is to say")
	case err != nil:
		return YAMLError(err)
	}
	return nil
}

// checkAliases refuses an alias inside of an anchor's value that stands for the anchor itself, or for another one in that value or
// in what is merged into it: the decoder knows an anchor only behind all of the outermost one around it, and reads null, without
// an error. It also refuses aliases that stand for too much.
func checkAliases(text []byte) error {
	if !bytes.ContainsRune(text, '&') || !bytes.ContainsRune(text, '*') {
		return nil
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return YAMLError(err)
	}
	e := expansion{anchors: map[string]int{}}
	a := aliases{anchors: map[string]*ast.AnchorNode{}}
	for _, d := range file.Docs {
		if e.count(d.Body); e.err != nil {
			return e.err
		}
		ast.Walk(anchored{a: &a}, d)
	}
	for _, x := range a.inside { // those before the anchor, too: the decoder reads what is in an anchor more than once
		if name := x.Value.String(); x.known[name] {
			return fmt.Errorf("line %d: *%s stands inside of the value of &%s, as &%s does: it would be read as null; write &%s "+
				"outside of it, or write the value again", x.GetToken().Position.Line, name, x.outer.Name, name, name)
		}
	}
	return nil
}

// aliases are what was found on the way through a document.
type aliases struct {
	anchors map[string]*ast.AnchorNode // by name
	inside  []inside
}

// inside is an alias in the value of an anchor.
type inside struct {
	*ast.AliasNode
	anchored
}

// anchored walks what is in the value of an anchor, or in none's.
type anchored struct {
	a     *aliases
	outer *ast.AnchorNode // the outermost
	merge bool            // it is the value of a merge key, in which the decoder finds all anchors
	known map[string]bool // names of the anchors met in its value, itself included
}

// Visit implements ast.Visitor.
func (v anchored) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.AnchorNode:
		name := n.Name.String()
		v.a.anchors[name] = n
		if v.outer == nil {
			v.outer, v.known = n, map[string]bool{}
		}
		v.known[name] = true
	case *ast.MappingNode:
		v.merge = false
	case *ast.MappingValueNode:
		if v.merge = n.Key.IsMergeKey(); v.merge && v.outer != nil {
			merged{into: v, seen: map[string]bool{}}.take(n.Value)
		}
	case *ast.AliasNode:
		if v.outer != nil && !v.merge {
			v.a.inside = append(v.a.inside, inside{n, v})
		}
	}
	return v
}

// merged walks what is merged into the value of an anchor: the decoder meets the anchors and the aliases in it there once more.
type merged struct {
	into  anchored
	seen  map[string]bool // anchors that were taken
	merge bool            // it is the value of a merge key
}

// take takes the value of a merge key.
func (m merged) take(n ast.Node) {
	switch n := n.(type) {
	case *ast.AliasNode:
		name := n.Value.String()
		if of := m.into.a.anchors[name]; of != nil && !m.seen[name] {
			m.seen[name] = true
			m.merge = false
			ast.Walk(m, of.Value)
		}
	case *ast.SequenceNode:
		for _, x := range n.Values {
			m.take(x)
		}
	}
}

// Visit implements ast.Visitor.
func (m merged) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.AnchorNode:
		m.into.known[n.Name.String()] = true
	case *ast.MappingNode:
		m.merge = false
	case *ast.MappingValueNode:
		if m.merge = n.Key.IsMergeKey(); m.merge {
			m.take(n.Value)
		}
	case *ast.AliasNode:
		if !m.merge {
			m.into.a.inside = append(m.into.a.inside, inside{n, m.into})
		}
	}
	return m
}

// position is how the decoder says where something is wrong.
var position = regexp.MustCompile(`^\[(\d+):\d+\] `)

// YAMLError says in one line what the decoder says of a file, and in which of its lines. The decoder draws the lines
// around it, too, which nobody can read behind one another.
func YAMLError(err error) error {
	text := strings.Join(strings.Fields(yaml.FormatError(err, false, false)), " ")
	return errors.New(position.ReplaceAllString(text, "line $1: "))
}
