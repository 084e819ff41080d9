package profile

import (
	"fmt"

	"github.com/goccy/go-yaml/token"
)

// shape is what is known of a document up to a token.
type shape struct {
	tokens    int // of the whole document
	prefixes  int // dashes, tags and anchors behind each other
	documents int
	absent    int     // values that are left out
	paths     int     // bytes of the paths of all values
	block     []level // stack of mappings and lists not in brackets, by their columns
	flow      []level // stack of brackets

	line  int // of the last token
	start int // column of the mapping that a key of this line is of
	last  *token.Token
}

// level is a mapping or a list around a value.
type level struct {
	column int
	keys   int
	above  int  // length of the path of all of it
	path   int  // length of the path of its last value
	braces bool // it is { }
	pair   bool // in it: since the last comma there was a colon
	filled bool // in it: since the last comma there was something
}

// path is the length of the path of the value that the next token is a part of.
func (s *shape) path() int {
	if n := len(s.flow); n > 0 {
		return s.flow[n-1].path
	}
	if n := len(s.block); n > 0 {
		return s.block[n-1].path
	}
	return 0
}

// take takes a token and looks at the next one, nil at the end. It says what the document has too much of.
func (s *shape) take(t, next *token.Token) (why string) {
	switch t.Type {
	case token.SequenceEntryType, token.MappingKeyType, token.TagType, token.AnchorType:
		if s.prefixes++; t.Type == token.SequenceEntryType && t.Position.Line != s.line {
			s.prefixes = 1
		}
	default:
		if s.last == nil || s.last.Type != token.AnchorType { // else it is the anchor's name
			s.prefixes = 0
		}
	}
	if t.Position.Line != s.line || s.last != nil && (s.last.Type == token.SequenceEntryType || s.last.Type == token.MappingKeyType) {
		s.line, s.start = t.Position.Line, t.Position.Column
	}
	s.last = t
	switch t.Type {
	case token.DocumentHeaderType, token.DocumentEndType:
		s.documents++
		s.block = s.block[:0]
	case token.SequenceStartType, token.MappingStartType:
		s.fill()
		p := s.path()
		s.flow = append(s.flow, level{above: p, path: p, braces: t.Type == token.MappingStartType})
	case token.SequenceEndType, token.MappingEndType, token.CollectEntryType:
		s.endEntry(t.Type != token.CollectEntryType)
	case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType:
		s.entry(t, next)
	default:
		s.fill()
	}
	switch {
	case len(s.flow) > maxNesting:
		return fmt.Sprintf("brackets are nested more than %d deep", maxNesting)
	case s.prefixes > maxNesting && (t.Type == token.SequenceEntryType || t.Type == token.MappingKeyType):
		return fmt.Sprintf("dashes are nested more than %d deep", maxNesting)
	case s.prefixes > maxNesting:
		return fmt.Sprintf("more than %d tags and anchors follow each other", maxNesting)
	case s.documents > maxDocuments:
		return fmt.Sprintf("there are more than %d documents", maxDocuments)
	case len(s.flow) == 0 && len(s.block) > 0 && s.block[len(s.block)-1].keys > maxKeys:
		return fmt.Sprintf("a mapping has more than %d keys", maxKeys)
	case int64(s.absent)*int64(s.tokens) > maxMoves:
		return fmt.Sprintf("%d values are left out, which are too many in so long a file", s.absent)
	case s.paths > maxPaths:
		return "its keys are too long, and nested too deep, for what is below them"
	}
	return ""
}

// fill notes that there is something between two commas.
func (s *shape) fill() {
	if n := len(s.flow); n > 0 {
		s.flow[n-1].filled = true
	}
}

// endEntry takes a comma, or a bracket that closes.
func (s *shape) endEntry(closes bool) {
	n := len(s.flow)
	if n == 0 {
		return
	}
	top := &s.flow[n-1]
	if top.braces && top.filled && !top.pair {
		s.absent++ // {a} has a without a value
	}
	top.pair, top.filled, top.path = false, false, top.above+8 // [1234567]
	s.paths += top.path
	if closes {
		s.flow = s.flow[:n-1]
	}
}

// entry takes what begins an entry of a list or of a mapping.
func (s *shape) entry(t, next *token.Token) {
	key := 8
	if t.Type == token.MappingValueType && t.Prev != nil {
		key = len(t.Prev.Value) + 1
	}
	if n := len(s.flow); n > 0 {
		top := &s.flow[n-1]
		top.filled = true
		if t.Type == token.MappingValueType {
			top.pair = true
			top.path = top.above + key
			s.paths += top.path
		}
		if next == nil || next.Type == token.CollectEntryType || next.Type == token.MappingEndType || next.Type == token.SequenceEndType {
			s.absent++
		}
		return
	}
	column := t.Position.Column
	if t.Type == token.MappingValueType {
		column = s.start
	}
	n := len(s.block)
	for n > 0 && s.block[n-1].column > column {
		n--
	}
	s.block = s.block[:n]
	if n == 0 || s.block[n-1].column < column {
		p := s.path()
		s.block = append(s.block, level{column: column, above: p})
		n++
	}
	top := &s.block[n-1]
	if t.Type != token.SequenceEntryType {
		top.keys++
	}
	top.path = top.above + key
	s.paths += top.path
	switch {
	case t.Type == token.MappingKeyType, next == nil:
		s.absent++
	case next.Position.Line == t.Position.Line:
	case next.Position.Column < column, next.Position.Column == column && (t.Type == token.SequenceEntryType || next.Type != token.SequenceEntryType):
		s.absent++
	}
}
