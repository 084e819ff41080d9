package profile

import (
	"bytes"
	"fmt"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// What a document may have. The parser takes time or memory that grows with the square of each of these, or more, and no document
// that says something comes near.
const (
	maxNesting   = 100     // brackets in each other, and dashes, tags and anchors behind each other
	maxInRow     = 100     // empty lines or < in a row, tabs in a line
	maxDocuments = 100     // in one file
	maxKeys      = 4096    // of one mapping that is not in brackets
	maxMoves     = 2 << 30 // values that are left out, times tokens: the parser puts each in between
	maxPaths     = 256 << 20
)

// Plain returns a document without the byte order mark that some editors begin it with.
func Plain(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\ufeff")) }

// Tokens takes a document apart for the parser, in time that grows as its length does. It refuses a document that the parser
// would take long for, or much memory, and returns the line.
func Tokens(text []byte) (tokens token.Tokens, line int, err error) {
	if line, what := repeated(text); what != "" {
		return nil, line, fmt.Errorf("there are more than %d %s; is it the right file?", maxInRow, what)
	}
	tokens = lexer.Tokenize(string(text))
	s := shape{tokens: len(tokens)}
	for i, t := range tokens {
		if t.Type == token.CommentType {
			continue
		}
		var next *token.Token
		for k := i + 1; k < len(tokens) && next == nil; k++ {
			if tokens[k].Type != token.CommentType {
				next = tokens[k]
			}
		}
		if why := s.take(t, next); why != "" {
			return nil, t.Position.Line, fmt.Errorf("%s; is it the right file?", why)
		}
	}
	return tokens, 0, nil
}

// repeated finds what the lexer looks at again with each one that follows, before it is asked.
func repeated(text []byte) (line int, what string) {
	line = 1
	empty, less, tabs := 0, 0, 0
	blank := true // the line, so far
	for i, c := range text {
		if c == '<' {
			less++
		} else {
			less = 0
		}
		switch c {
		case '\n', '\r':
			if c == '\r' && i+1 < len(text) && text[i+1] == '\n' {
				continue
			}
			if empty++; !blank {
				empty = 0
			}
			if empty > maxInRow {
				return line, "empty lines in a row"
			}
			line++
			blank, tabs = true, 0
		case '\t':
			tabs++
		case ' ':
		default:
			blank = false
		}
		switch {
		case less > maxInRow:
			return line, "< in a row"
		case tabs > maxInRow:
			return line, "tabs in a line"
		}
	}
	return 0, ""
}
