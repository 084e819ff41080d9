package profile

import (
	"bytes"
	"fmt"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// maxNesting is how deep brackets, and dashes on one line, may be nested in each other.
const maxNesting = 100

// Plain returns a document without the byte order mark that some editors begin it with.
func Plain(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\ufeff")) }

// CheckNesting refuses a document that is nested deeper than any that says something, and returns the line. The parser keeps
// the whole path of each value: of 32 KiB of brackets it makes gigabytes.
func CheckNesting(text []byte) (line int, err error) {
	brackets, dashes := 0, 0
	for _, t := range lexer.Tokenize(string(text)) {
		if t.Type != token.SequenceEntryType && t.Type != token.MappingKeyType {
			dashes = 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType:
			dashes++
		}
		what := ""
		switch {
		case brackets > maxNesting:
			what = "brackets"
		case dashes > maxNesting:
			what = "dashes"
		}
		if what != "" {
			return t.Position.Line, fmt.Errorf("%s are nested more than %d deep; is it the right file?", what, maxNesting)
		}
	}
	return 0, nil
}
