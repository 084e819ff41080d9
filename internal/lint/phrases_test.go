package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// worst are phrases that a reader has to translate back, each with what the field says. They are refused in
// README.md, in the documents and decisions, in the strings of the source, which are help texts and messages, and
// in the page's texts and comments.
var worst = []struct {
	phrase  *regexp.Regexp
	instead string
}{
	{phrase(`tells? whether`), "reports whether"},
	{phrase(`kernel'?s? doors?`), "the TCMU front end"},
	{phrase(`anew`), "again, from 0; is rebuilt, restarted, reopened"},
	{phrase(`mend(s|ed|ing)?`), "repair, restore, fix, replace"},
	{phrase(`makes? no sense`), "is malformed, unknown, out of range"},
	{phrase(`is no (size|address|port|state|speed|share|token|policy|time|option|iSCSI name|LUN|quantity|value|number|multiple|device)`), `is not a valid ..., is not a ...`},
	{phrase(`there twice`), "appears twice"},
	{phrase(`without end`), "endless, indefinitely"},
	{phrase(`of late`), "recently"},
	{phrase(`the (less|more) the (less|more|longer|higher)`), "shrinks as, grows with"},
	{phrase(`all the same`), "anyway"},
	{phrase(`accus(e|es|ed|ation|ations)|culprits?`), "name, attribute; the source"},
	{phrase(`in the place of`), "instead of"},
	{phrase(`(is|are) (told|said)`), "is notified, reported, listed"},
	{phrase(`what there is`), "the results, what exists"},
	{phrase(`wants? just`), "must match"},
	{phrase(`is to be found`), "is"},
	{phrase(`cannot tell from`), "treat as"},
	{phrase(`in no time`), "at once, in microseconds"},
	{phrase(`made to measure|by and by|of its own accord`), "what is meant"},
}

// existence is how plain English says that something is missing.
var existence = regexp.MustCompile(`\b[Tt]here is no `)

func phrase(p string) *regexp.Regexp { return regexp.MustCompile(`\b(?:` + p + `)\b`) }

// refused lists the phrases of a text, with the lines on which they are.
func refused(text string) (bad []string) {
	for i, line := range strings.Split(text, "\n") {
		line = existence.ReplaceAllString(line, "")
		for _, w := range worst {
			if found := w.phrase.FindString(line); found != "" {
				bad = append(bad, fmt.Sprintf("line %d: %q; write: %s", i+1, found, w.instead))
			}
		}
	}
	return bad
}

// TestWordsOfDocuments: README.md, its neighbours, docs/, examples/ and the page are without the worst phrases.
func TestWordsOfDocuments(t *testing.T) {
	seen := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md", "examples/*.md", "examples/*/*.md", "web/src/*.ts", "web/src/*.tsx"} {
		list, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range list {
			b, err := os.ReadFile(doc)
			if err != nil {
				t.Fatal(err)
			}
			seen++
			for _, msg := range refused(string(b)) {
				t.Errorf("%s: %s", strings.TrimPrefix(doc, root+"/"), msg)
			}
		}
	}
	if seen < 60 {
		t.Errorf("looked at %d documents", seen)
	}
}

// TestWordsOfMessages: so are the strings of the source, of which help texts, errors and logs are made.
func TestWordsOfMessages(t *testing.T) {
	seen := 0
	eachFile(t, func(_, name string, f *ast.File) {
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		for _, text := range prose(f) {
			seen++
			for _, msg := range refused(text) {
				t.Errorf("%s: %.80q: %s", name, text, msg)
			}
		}
	})
	if seen < 2000 {
		t.Errorf("looked at %d strings", seen)
	}
}

// TestWordsOfExamples: and the configuration that the binary brings along.
func TestWordsOfExamples(t *testing.T) {
	for _, dir := range []string{"internal/admin", "internal/profile/profiles"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(p) != ".yaml" {
				return err
			}
			b, err := os.ReadFile(p)
			for _, msg := range refused(string(b)) {
				t.Errorf("%s: %s", p, msg)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// prose returns the strings of a file that have a space, which names have not.
func prose(f *ast.File) (out []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		if text, err := strconv.Unquote(lit.Value); err == nil && strings.Contains(text, " ") {
			out = append(out, text)
		}
		return true
	})
	return out
}

// TestRefusedPhrasesBite shows that each phrase is found, and what is like one is not.
func TestRefusedPhrasesBite(t *testing.T) {
	for _, bad := range []string{
		"POST /token tells whether it is right", "the kernel's door is open", "the copy is made anew", "how to mend it",
		`"10X" is no size`, "the answer makes no sense", "text without end", "what happened of late", "is the less the more was written",
		"the array starts all the same", "nobody is accused", "the culprit", "the kernel is told", "one that exists wants just these",
	} {
		if len(refused("a line\n"+bad)) == 0 {
			t.Errorf("%q is taken", bad)
		}
	}
	for _, good := range []string{"an amendment", "there is no size", "renewed", "the TCMU front end", "recommended", "relate", "CULPRITS"} {
		if got := refused(good); len(got) != 0 {
			t.Errorf("%q is refused: %q", good, got)
		}
	}
}
