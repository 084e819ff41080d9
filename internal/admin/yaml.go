package admin

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/arraysim/arraysim/internal/profile"
)

// source is a configuration file's text and where its values are.
type source struct {
	name  string
	lines [][]byte
	line  map[string]int // of a path such as pools[0].mdisks[1].size
}

// ParseConfig reads a configuration. Errors name the file, the line, and show it.
func ParseConfig(name string, text []byte) (*Config, error) {
	text = profile.Plain(text)
	s := &source{name: name, lines: bytes.Split(text, []byte("\n")), line: map[string]int{}}
	c := &Config{src: s}
	tokens, line, err := profile.Tokens(text)
	if err != nil {
		return nil, s.on(line, "%w", err)
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, s.explain(err)
	}
	if len(file.Docs) > 1 {
		return nil, s.on(file.Docs[1].GetToken().Position.Line, "there is more than one YAML document; keep one")
	}
	if len(file.Docs) == 1 && file.Docs[0].Body != nil {
		if err := s.decode(file.Docs[0].Body, reflect.ValueOf(c).Elem(), ""); err != nil {
			return nil, err
		}
	}
	c.fill()
	if err := c.validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// on makes an error about a line.
func (s *source) on(line int, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	text := ""
	if line > 0 && line <= len(s.lines) {
		text = strings.TrimSpace(string(s.lines[line-1]))
	}
	if len(text) > 80 {
		text = text[:77] + "..."
	}
	shown := "line: " + text
	if secretKey.MatchString(text) {
		shown = "the line is not shown: it may hold a secret"
	}
	return fmt.Errorf("%s:%d: %w (%s)", s.name, line, err, shown)
}

// secretKey is what somebody writes who takes the configuration for the place of a secret, which is a file. An error about
// that goes into logs.
var secretKey = regexp.MustCompile(`(?i)(secret|passw(or)?d|passphrase)["']?\s*:`)

// at makes an error about the value at a path, or about the nearest one around it.
func (s *source) at(path, format string, args ...any) error {
	for path != "" && s.line[path] == 0 {
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return s.on(max(s.line[path], 1), format, args...)
}

// explain turns a parser's error into one line.
func (s *source) explain(err error) error {
	var y yaml.Error
	if !errors.As(err, &y) || y.GetToken() == nil {
		return fmt.Errorf("%s: %s", s.name, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	msg := y.GetMessage()
	if msg == "" {
		msg = err.Error()
	}
	msg, _, _ = strings.Cut(msg, "\n")
	return s.on(y.GetToken().Position.Line, "%s", msg)
}

// decode makes v what n says, and notes the lines of all values. It refuses keys
// that v does not have. The parser's own decoder is not used because it loses
// the line of many errors.
func (s *source) decode(n ast.Node, v reflect.Value, path string) error {
	line := n.GetToken().Position.Line
	if _, ok := n.(*ast.NullNode); ok {
		return nil // as if it were left out
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	wrong := func(want string) error {
		what := path
		if what == "" {
			what = "the file"
		}
		if text, ok := scalar(n); ok {
			what += fmt.Sprintf(": %q", text)
		}
		return s.on(line, "%s is not %s", what, want)
	}
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		return wrong("plain; anchors, aliases and tags are not taken, write it out")
	}
	switch v.Kind() {
	case reflect.Struct:
		switch n := n.(type) {
		case *ast.MappingNode:
			for _, pair := range n.Values {
				if err := s.decodePair(pair, v, path); err != nil {
					return err
				}
			}
			return nil
		case *ast.MappingValueNode:
			return s.decodePair(n, v, path)
		}
		return wrong("a map of keys and values")
	case reflect.Slice:
		list, ok := n.(*ast.SequenceNode)
		if !ok {
			return wrong("a list; write [...], or one entry a line with a dash")
		}
		v.Set(reflect.MakeSlice(v.Type(), len(list.Values), len(list.Values)))
		for i, e := range list.Values {
			at := fmt.Sprintf("%s[%d]", path, i)
			s.line[at] = e.GetToken().Position.Line
			if err := s.decode(e, v.Index(i), at); err != nil {
				return err
			}
		}
		return nil
	case reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			return wrong("true or false")
		}
		v.SetBool(b.Value)
		return nil
	}
	text, ok := scalar(n)
	if !ok {
		return wrong("a single value")
	}
	if size, ok := v.Addr().Interface().(*Size); ok {
		if err := size.Set(text); err != nil {
			return s.on(line, "%w", err)
		}
		return nil
	}
	if d, ok := v.Addr().Interface().(*time.Duration); ok {
		x, err := time.ParseDuration(text)
		if err != nil {
			return wrong("a time such as 30s or 1m")
		}
		*d = x
		return nil
	}
	if v.Kind() == reflect.String {
		v.SetString(text)
		return nil
	}
	i, err := strconv.ParseInt(text, 0, 64)
	if err != nil || v.CanUint() && (i < 0 || v.OverflowUint(uint64(i))) {
		return wrong("a whole number")
	}
	if v.CanUint() {
		v.SetUint(uint64(i))
	} else {
		v.SetInt(i)
	}
	return nil
}

// scalar returns the text of a single value. The parser takes a:b between
// brackets inside braces for a pair, where YAML 1.2.2 (7.3.3) has one scalar because no
// space follows the colon: iSCSI names look like that.
func scalar(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	case *ast.MappingNode:
		if len(n.Values) == 1 && n.GetToken().Type != token.MappingStartType {
			return scalar(n.Values[0])
		}
	case *ast.MappingValueNode:
		key, value := n.Key.GetToken(), n.Value.GetToken()
		if value.Position.Line != key.Position.Line || value.Position.Column != key.Position.Column+len(key.Value)+1 {
			return "", false
		}
		rest, ok := scalar(n.Value)
		return key.Value + ":" + rest, ok
	}
	return "", false
}

func (s *source) decodePair(pair *ast.MappingValueNode, v reflect.Value, path string) error {
	key := pair.Key.GetToken().Value
	line := pair.Key.GetToken().Position.Line
	var known []string
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("yaml")
		if name == "" || name == "-" {
			continue
		}
		if name == key {
			at := strings.TrimPrefix(path+"."+key, ".")
			if s.line[at] != 0 {
				return s.on(line, "%s appears twice; line %d has it too", at, s.line[at])
			}
			s.line[at] = line
			return s.decode(pair.Value, v.Field(i), at)
		}
		known = append(known, name)
	}
	where := ""
	if path != "" {
		where = " in " + path
	}
	if best := nearest(key, known); best != "" {
		return s.on(line, "unknown key %q%s; did you mean %q?", key, where, best)
	}
	if outer := outerKey(key, path); outer != "" {
		return s.on(line, "unknown key %q%s; it belongs to %s", key, where, outer)
	}
	return s.on(line, "unknown key %q%s; the keys here are %s", key, where, strings.Join(known, ", "))
}

// outerKey finds a key that was written one level too deep.
func outerKey(key, path string) string {
	if strings.HasSuffix(path, ".export") && (key == "removable" || key == "write_protect") {
		return strings.TrimSuffix(path, ".export")
	}
	return ""
}

// nearest returns the word that is at most two edits (a third of its length) away.
func nearest(key string, words []string) string {
	best, least := "", 3
	for _, w := range words {
		if d := distance(strings.ToLower(key), w); d < least && d*3 <= len(w)+2 {
			best, least = w, d
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of neighbours
// between two words (optimal string alignment).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
