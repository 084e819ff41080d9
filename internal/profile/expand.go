package profile

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
)

// maxExpanded is how many values a document may have with each alias replaced by what it stands for. Whoever copies or writes
// what was read does so: 30 anchors, each of two aliases of the one before, are 1e9 values.
const maxExpanded = 1 << 20

// expansion counts the values of a document with its aliases replaced. An alias of an unknown anchor counts as nothing.
type expansion struct {
	anchors map[string]int // values that each stands for
	err     error          // names the first alias that was too much
}

// count returns the number of values in n, maxExpanded at the most.
func (e *expansion) count(n ast.Node) (values int) {
	switch n := n.(type) {
	case *ast.AnchorNode:
		values = e.count(n.Value)
		e.anchors[n.Name.String()] = values
		return values
	case *ast.AliasNode:
		return e.anchors[n.Value.String()]
	case *ast.TagNode:
		return e.count(n.Value)
	case *ast.MappingKeyNode:
		return e.count(n.Value)
	case *ast.MappingValueNode:
		return e.add(e.count(n.Key), n.Value)
	case *ast.MappingNode:
		for _, x := range n.Values {
			values = e.add(values, x)
		}
	case *ast.SequenceNode:
		for _, x := range n.Values {
			values = e.add(values, x)
		}
	}
	return min(values+1, maxExpanded)
}

// add counts one more value behind others.
func (e *expansion) add(values int, n ast.Node) int {
	values += e.count(n)
	if values > maxExpanded && e.err == nil {
		e.err = fmt.Errorf("line %d: with its aliases replaced, the document has more than %d values; is it the right file?",
			n.GetToken().Position.Line, maxExpanded)
	}
	return min(values, maxExpanded)
}
