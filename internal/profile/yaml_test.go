package profile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/arraysim/arraysim/internal/testkit"
)

func TestYAMLError(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1 localhost\n127.0.0.1 vm\n": "line 1: string was used where mapping is expected",
		"name: x\nnaem: y\n":                  `line 2: unknown field "naem"`,
		"":                                    "it is empty; write what it is to say",
		"# nothing yet\n":                     "it is empty; write what it is to say",
		"\ufeffnaem: y\n":                     `line 1: unknown field "naem"`,
		// Some gigabytes, if it were parsed.
		"name: x\na: " + strings.Repeat("[", 1<<15) + strings.Repeat("]", 1<<15): "line 2: brackets are nested more than 100 deep; is it the right file?",
		strings.Repeat("- ", 1<<15): "line 1: dashes are nested more than 100 deep; is it the right file?",
	} {
		if _, err := Parse([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
}

// TestLongToParse: what the parser takes long for is refused before it gets it, whatever stands around it.
func TestLongToParse(t *testing.T) {
	keys := func(form string) string {
		var b strings.Builder
		for i := range 6000 {
			fmt.Fprintf(&b, form, i)
		}
		return b.String()
	}
	many := strings.Repeat
	for _, row := range []struct{ text, want string }{
		{"a: |\n" + many("\n", 32<<10) + "b: 1\n", "line 102: there are more than 100 empty lines in a row"},
		{"a: |\n  x\n" + many("  \r", 32<<10) + "b: 1\n", "line 103: there are more than 100 empty lines in a row"},
		{"a: " + many("<", 32<<10), "line 1: there are more than 100 < in a row"},
		{"a: \"" + many("x\t", 32<<10) + "\"", "line 1: there are more than 100 tabs in a line"},
		{many("!t ", 32<<10) + "a", "line 1: more than 100 tags and anchors follow each other"},
		{many("&a ", 32<<10) + "a", "line 1: more than 100 tags and anchors follow each other"},
		{many("? ", 32<<10), "line 1: dashes are nested more than 100 deep"},
		{many("--- a\n", 1<<10), "line 101: there are more than 100 documents"},
		{many("a\n...\n", 1<<10), "line 202: there are more than 100 documents"},
		{keys("k%d: 1\n"), "line 4097: a mapping has more than 4096 keys"},
		{"l:\n- " + keys("  &a k%d: 1\n")[2:], "line 4098: a mapping has more than 4096 keys"},
		{keys("? k%d\n"), "line 4097: a mapping has more than 4096 keys"},
		{many("-\n", 64<<10), "line 32769: 32769 values are left out, which are too many in so long a file"},
		{many("- a:\n", 40<<10), "line 17477: 17477 values are left out"},
		{"[" + many("a: ,\n", 40<<10) + "]", "line 17476: 17476 values are left out"},
		{"{" + keys("k%d,\n") + many("b: 1,\n", 100<<10) + "}", "line 5094: 5094 values are left out"},
		{many("k", 128<<10) + ":\n" + many(" - 1\n", 4<<10), "line 2048: its keys are too long, and nested too deep, for what is below them"},
		{"{" + many("k", 128<<10) + ": [" + many("1,\n", 4<<10) + "]}", "line 2047: its keys are too long, and nested too deep, for what is below them"},
	} {
		_, line, err := Tokens([]byte(row.text))
		if got := fmt.Sprintf("line %d: %v", line, err); !strings.HasPrefix(got, row.want) {
			t.Errorf("%.20q...: %s, want %s", row.text, got, row.want)
		}
	}
	for name, text := range map[string]string{
		"a list of nothing":   many("-\n", 1000),
		"a list":              many("- {a: [1], b: , c}\n", 1000),
		"a list of mappings":  many("- a: 1\n  b:\n    c: {d: 1}\n  e:\n  - f\n", 5000),
		"long brackets":       "[" + many("{a: 1, b: [2, 3]}, ", 50_000) + "]",
		"as many keys":        keys("k%d: 1\n")[:len(keys("k%d: 1\n"))-1904*9],
		"keys in brackets":    "{" + keys("k%d: 1, ") + "}",
		"some empty lines":    "a: |\n" + many("\n", 99) + "  x\n" + many("\n", 99) + "b: 1\n",
		"nested far":          nested(200),
		"comments":            many("# x\n", 20_000) + "a: 1\n" + many("\n# x\n", 20_000),
		"tables in a comment": many("# a\tb\tc\n", 20_000),
	} {
		if _, line, err := Tokens([]byte(text)); err != nil {
			t.Errorf("%s: line %d: %v", name, line, err)
		}
	}
}

// nested are mappings in each other.
func nested(depth int) string {
	var b strings.Builder
	for i := range depth {
		fmt.Fprintf(&b, "%*sk%d:\n", i, "", i)
	}
	return b.String() + strings.Repeat(" ", depth) + "x: 1\n"
}

// TestExpandedAliases: what is short, and would be long with its aliases replaced, is refused before anybody does so.
func TestExpandedAliases(t *testing.T) {
	doc := func(levels int, form string) []byte {
		var b strings.Builder
		b.WriteString("x:\n  a0: &a0 {k: 1}\n")
		for i := range levels {
			fmt.Fprintf(&b, "  a%d: &a%d "+form+"\n", i+1, i+1, i, i)
		}
		return []byte(b.String())
	}
	for _, row := range []struct {
		levels int
		form   string
		want   string
	}{
		{10, "[*a%d, *a%d]", ""},
		{30, "[*a%d, *a%d]", "line 20: with its aliases replaced, "},
		{30, "{x: *a%d, y: *a%d}", "line 19: with its aliases replaced, "},
		{30, "\n    - {z: *a%d}\n    - - *a%d", "line 51: with its aliases replaced, "},
	} {
		var into map[string]any
		err := DecodeYAML(doc(row.levels, row.form), &into)
		if got := fmt.Sprint(err); (err == nil) != (row.want == "") || !strings.HasPrefix(got, row.want) && row.want != "" {
			t.Errorf("%d levels of %q: %s, want %s", row.levels, row.form, got, row.want)
		}
	}
}

// TestAliases: what the decoder would take for null is refused, and what it reads is read.
func TestAliases(t *testing.T) {
	for text, want := range map[string]string{
		"a: &each\n  x: &third {v: 3}\n  y: *third\nb: *each\n": "line 3: *third stands inside of the value of &each, as &third does",
		"a: &each\n  y: *each\n":                                "line 2: *each stands inside of the value of &each",
		"a: &o\n  b: &i\n    x: &t {v: 3}\n  c: {d: *t}\n":      "line 4: *t stands inside of the value of &o",
		"x: &third {v: 3}\na: &each {y: *third}\nb: *each\n":    "",
		"x: &third {v: 3}\ny: *third\n":                         "",
		"a: &each {x: 1}\nb: &other {y: *each}\nc: *other\n":    "",
		"a: 1 & 2 * 3\n": "",
		"a: &o {x: &t {v: 3}}\nb: &p {<<: *o, y: *t}\n":                   "line 2: *t stands inside of the value of &p, as &t does",
		"a: &o {x: &t {v: 3}}\nq: &q {<<: [*o]}\nb: &p {<<: *q, y: *t}\n": "line 3: *t stands inside of the value of &p",
		"d: &d {x: &t 1}\no: &o {z: *t}\nb: &p {<<: [*d, *o]}\n":          "line 2: *t stands inside of the value of &p",
		"a: &p {x: &t {v: 3}, y: {<<: *t}}\n":                             "",
		"a: &o {x: &t {v: 3}}\nb: {<<: *o, y: *t}\n":                      "",
		"a: &o {x: &t {v: 3}}\nb: &p {z: *o, y: *t}\n":                    "",
	} {
		var v map[string]any
		switch err := DecodeYAML([]byte(text), &v); {
		case want == "" && err != nil:
			t.Errorf("%q: %v", text, err)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if want == "" && strings.Contains(fmt.Sprint(v), "nil") {
			t.Errorf("%q was read as %v", text, v)
		}
	}
}

// anchors makes documents with anchors, aliases and merges, and what they say.
type anchors struct {
	rng    *rand.Rand
	last   int // number of a key, an anchor or a value
	closed []int
	values map[int]any // of the anchors that are closed
}

// node appends a node, and returns its value.
func (a *anchors) node(b *strings.Builder, depth int) any {
	if n := len(a.closed); n > 0 && a.rng.IntN(3) == 0 {
		name := a.closed[a.rng.IntN(n)]
		fmt.Fprintf(b, "*a%d", name)
		return a.values[name]
	}
	a.last++
	name := a.last
	if a.rng.IntN(2) == 0 {
		fmt.Fprintf(b, "&a%d ", name)
		defer func() { a.closed = append(a.closed, name) }()
	}
	var v any
	switch {
	case depth == 0 || a.rng.IntN(4) == 0:
		v = uint64(name)
		fmt.Fprint(b, name)
	case a.rng.IntN(4) == 0:
		l := []any{}
		b.WriteByte('[')
		for i := range 1 + a.rng.IntN(2) {
			if i > 0 {
				b.WriteString(" , ")
			}
			l = append(l, a.node(b, depth-1))
		}
		b.WriteString(" ]")
		v = l
	default:
		v = a.mapping(b, depth)
	}
	a.values[name] = v
	return v
}

func (a *anchors) mapping(b *strings.Builder, depth int) map[string]any {
	m := map[string]any{}
	b.WriteByte('{')
	if n := len(a.closed); n > 0 && a.rng.IntN(2) == 0 {
		name := a.closed[a.rng.IntN(n)]
		if of, ok := a.values[name].(map[string]any); ok {
			fmt.Fprintf(b, "<<: *a%d , ", name)
			maps.Copy(m, of)
		}
	}
	for i := range 1 + a.rng.IntN(3) {
		if i > 0 {
			b.WriteString(" , ")
		}
		a.last++
		k := fmt.Sprint("k", a.last)
		fmt.Fprintf(b, "%s: ", k)
		m[k] = a.node(b, depth-1)
	}
	b.WriteString(" }")
	return m
}

// TestRandomAliases: what is read is what the document says, and what is refused would have been read as something else.
func TestRandomAliases(t *testing.T) {
	a := &anchors{rng: rand.New(rand.NewPCG(testkit.Seed(t), 5))}
	read, refused := 0, 0
	for range 3000 {
		a.last, a.closed, a.values = 0, nil, map[int]any{}
		var b strings.Builder
		want := a.mapping(&b, 3)
		var got, raw map[string]any
		err := DecodeYAML([]byte(b.String()), &got)
		if err == nil {
			read++
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s\nwas read as %v, want %v", &b, got, want)
			}
			continue
		}
		refused++
		if yaml.Unmarshal([]byte(b.String()), &raw) == nil && reflect.DeepEqual(raw, want) {
			t.Fatalf("%s\nis refused: %v", &b, err)
		}
	}
	if read < 300 || refused < 300 {
		t.Errorf("of the documents %d are read and %d refused", read, refused)
	}
}
