package profile

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// DecodeYAML reads a YAML document into a value, and refuses keys that it does not know and aliases that the decoder takes for
// null. An error is one line and names the line of the document.
func DecodeYAML(text []byte, into any) error {
	if err := checkAliases(text); err != nil {
		return err
	}
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(into); err != nil {
		return YAMLError(err)
	}
	return nil
}

// checkAliases refuses an alias inside of an anchor's value that stands for the anchor itself, or for another one in that value:
// the decoder knows an anchor only behind all of the outermost one around it, and reads null, without an error.
func checkAliases(text []byte) error {
	if !bytes.ContainsRune(text, '&') || !bytes.ContainsRune(text, '*') {
		return nil
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return YAMLError(err)
	}
	a := aliases{within: map[string][]*ast.AnchorNode{}}
	for _, d := range file.Docs {
		ast.Walk(anchored{a: &a}, d)
	}
	return a.err
}

// aliases are what was found on the way through a document.
type aliases struct {
	within map[string][]*ast.AnchorNode // by name of an anchor: the anchors whose values it is in, itself included
	err    error
}

// anchored walks what is in the values of anchors, the outermost first.
type anchored struct {
	a    *aliases
	open []*ast.AnchorNode
}

// Visit implements ast.Visitor.
func (v anchored) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.AnchorNode:
		open := append(slices.Clone(v.open), n)
		v.a.within[n.Name.String()] = open
		return anchored{v.a, open}
	case *ast.AliasNode:
		name := n.Value.String()
		of := v.a.within[name]
		if v.a.err == nil && len(v.open) > 0 && len(of) > 0 && of[0] == v.open[0] {
			v.a.err = fmt.Errorf("line %d: *%s stands inside of the value of &%s, as &%s does: it would be read as null; write &%s "+
				"outside of it, or write the value again", n.GetToken().Position.Line, name, v.open[0].Name, name, name)
		}
	}
	return v
}

// position is how the decoder says where something is wrong.
var position = regexp.MustCompile(`^\[(\d+):\d+\] `)

// YAMLError says in one line what the decoder says of a file, and in which of its lines. The decoder draws the lines
// around it, too, which nobody can read behind one another.
func YAMLError(err error) error {
	text := strings.Join(strings.Fields(yaml.FormatError(err, false, false)), " ")
	return errors.New(position.ReplaceAllString(text, "line $1: "))
}
