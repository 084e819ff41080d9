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
// README.md, in the documents and decisions, in the strings of the source, which are help texts and messages, in
// the page's texts and comments, and in what packages and make bring to a user: in any case, over the ends of
// lines, too.
var worst = []struct {
	phrase  *regexp.Regexp
	instead string
}{
	{phrase(`tells? whether`), "reports whether"},
	{phrase(`kernel'?s? doors?`), "the TCMU front end"},
	{phrase(`anew`), "again, from 0; is rebuilt, restarted, reopened"},
	{phrase(`mend(s|ed|ing)?`), "repair, restore, fix, replace"},
	{phrase(`makes? no sense`), "is malformed, unknown, out of range"},
	{phrase(`(is|are) no (whole |valid |hexadecimal |known |real )?(size|address|port|state|speed|share|token|policy|time|option|iSCSI name|LUN|quantity|value|numbers?|multiple|device|version)`), `is not a valid ..., is not a ...`},
	{phrase(`there twice`), "appears twice"},
	{phrase(`without end`), "endless, indefinitely"},
	{phrase(`of late`), "recently"},
	{phrase(`the (less|more) the (less|more|longer|higher)`), "shrinks as, grows with"},
	{phrase(`all the same`), "anyway"},
	{phrase(`accus(e|es|ed|ation|ations)|culprits?`), "name, attribute; the source"},
	{phrase(`in (the )?place of`), "instead of"},
	{phrase(`(is|are|was|were) (no longer |not |never |then |also )?(told|said)`), "is notified, reported, listed; are not distinguished"},
	{phrase(`(is|are|was|were) (no longer |not |never |then |also )?made`), "is created, computed, written, run"},
	{phrase(`books`), "records, accounts for, charges to"},
	{phrase(`what there is`), "the results, what exists"},
	{phrase(`wants? just`), "must match"},
	{phrase(`is to be found`), "is"},
	{phrase(`cannot tell from`), "treat as"},
	{phrase(`in no time`), "at once, in microseconds"},
	{phrase(`made to measure|by and by|of its own accord`), "what is meant"},
	{phrase(`by --[a-z][a-z-]*`), "with --flag"},
	{phrase(`behind (a|an|the|its|each|every|that|one|any|some) (next |last |failed )?(crash|death|restart|start|stop|flush|sync|reset|pause|minute|second|write|commit|failure|loss|power cut|move|take-?over)`), "after"},
	{phrase(`has not (\d+|a|an|the) \w+`), "does not have"},
	{phrase(`which there is not`), "which does not exist"},
	{phrase(`(this|that|it) is no (XML|Parquet|JSON|YAML|file|folder|socket|table|answer|parameter|configuration|statistics|hostcache|array|node)`), "this is not a ..."},
	{phrase(`and the like`), "and others; name them"},
	{phrase(`is it of another|of another version`), "a different version"},
	{phrase(`go(es)? on|went on`), "continue"},
	{phrase(`any more`), "no longer, any longer"},
	{phrase(`carr(y|ies|ied) (it |them )?out`), "execute"},
	{phrase(`hears? of|heard of`), "is notified of, learns of"},
	{phrase(`told apart|tells? apart`), "distinguish"},
	{phrase(`(is|are|was|were) looked at`), "is examined, checked, verified"},
	{phrase(`what is left of`), "the rest of, the remains of"},
	{phrase(`for want of`), "for lack of"},
	{phrase(`to be had`), "available"},
	{phrase(`takes? it that`), "assumes that"},
	{phrase(`at one time`), "at a time, concurrent"},
	{phrase(`again and again`), "repeatedly"},
	{phrase(`ground floor|doors?`), "the base layer; a front end"},
}

// plain is what has words of the above and is plain English: that something is missing, what something consists of or
// was created with, calls; and names in the page's source.
var plain = regexp.MustCompile(`\b[Tt]here is no |\b(?:is|are|was|were) made (?:of|from|up|with|by|writable)\b|\b(?:[Cc]alls?|copies) (?:[^.;]* )?(?:is|are|was|were) made\b|function \w+|<\w+`)

func phrase(p string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b(?:` + p + `)\b`) }

var (
	// lead is what a line begins with that its text does not: indents, and the marks of comments and quotes.
	lead = regexp.MustCompile(`^[\s]*(?:(?://+|#+|\*|>|;)(?:\s+|$))*`)
	// apart is how a line begins that does not go on the one before: an entry of a list, a row of a table, a fence.
	apart = regexp.MustCompile("^(?:[-*+] |\\d+[.)] |[|]|```)")
)

// sentence is lines of a text in one, with the number of its first.
type sentence struct {
	text string
	line int
}

// joined returns a text's paragraphs, so that a phrase is found over the end of a line, too. A comment goes on over
// the marks before its lines.
func joined(text string) (out []sentence) {
	open := false
	for i, line := range strings.Split(text, "\n") {
		mark := lead.FindString(line)
		line = strings.TrimSpace(line[len(mark):])
		switch {
		case line == "":
			open = false
		case open && !apart.MatchString(strings.TrimSpace(mark)+" "+line) && !apart.MatchString(line):
			out[len(out)-1].text += " " + line
		default:
			out, open = append(out, sentence{line, i + 1}), !strings.HasPrefix(line, "|")
		}
	}
	return out
}

// refused lists the phrases of a text, each with the first line of its paragraph.
func refused(text string) (bad []string) {
	for _, s := range joined(text) {
		text := plain.ReplaceAllString(s.text, "")
		for _, w := range worst {
			if found := w.phrase.FindString(text); found != "" {
				bad = append(bad, fmt.Sprintf("from line %d on: %q; write: %s", s.line, found, w.instead))
			}
		}
	}
	return bad
}

// TestWordsOfDocuments: README.md, its neighbours, docs/ with the descriptions of keys and operations, examples/ and the page
// are without the worst phrases.
func TestWordsOfDocuments(t *testing.T) {
	seen := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md", "examples/*.md", "examples/*/*.md", "web/src/*.ts", "web/src/*.tsx",
		"docs/*.yaml", "docs/openapi.json", "docs/schema/*.json", "Makefile", "scripts/vm/vm.mk", "scripts/release/debian/README.Debian", "scripts/systemd/*", "examples/scripts/*"} {
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
			name := strings.TrimPrefix(doc, root+"/")
			text := string(b)
			for _, msg := range refused(text) {
				t.Errorf("%s: %s", name, msg)
			}
		}
	}
	if seen < 70 {
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
		"a token is made", "it books the bytes", "what is no longer told", "0.9 and 1.1 are not told apart", "it is no whole number", "CULPRITS",
		"In The Place Of", "written anew", "choose another by --data", "only a start behind a crash finds it", "this is no Parquet file",
		"CSV, JSON and the like", "is it of another version", "the copy goes on", "hosts go on", "what is no array's any more", "9 in place of 28",
		"the array carries it out", "is carried out", "hosts hear of no error", "cannot be told apart", "its lock is looked at", "what is left of it",
		"for want of space", "KVM is not to be had", "it takes it that the LUN is gone", "32 at one time", "damaged again and again", "the ground floor",
		"a volume has one door",
	} {
		for _, text := range []string{bad, strings.ReplaceAll(bad, " ", "\n"), "    " + strings.ReplaceAll(bad, " ", "\n    "),
			"# " + strings.ReplaceAll(bad, " ", "\n# "), "// " + strings.ReplaceAll(bad, " ", "\n// "), "- " + strings.ReplaceAll(bad, " ", "\n  ")} {
			if len(refused("A sentence.\n\n"+text)) == 0 {
				t.Errorf("%q is taken", text)
			}
		}
	}
	if got := refused("one\n\ntwo\nthree is\ntold\n"); len(got) != 1 || !strings.HasPrefix(got[0], "from line 3 on: ") {
		t.Errorf("a phrase over the end of a line: %q", got)
	}
	for _, good := range []string{"an amendment", "there is no size", "renewed", "the TCMU front end", "recommended", "relate",
		"a key is made of the name", "calls without data are made at once", "the value is\n\ntold by others", "| what is |\n| told |",
		"- what is\n- told", "the volume is no longer LUN 3", "There is no\nsize", "standby --force", "commands wait behind the copy's",
		"it is no longer a file", "what he is like", "no more than 8", "ongoing", "one at a time", "outdoor"} {
		if got := refused(good); len(got) != 0 {
			t.Errorf("%q is refused: %q", good, got)
		}
	}
}
