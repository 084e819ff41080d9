package lint

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// proseColumns is the width of prose in Markdown.
const proseColumns = 100

var (
	fence = regexp.MustCompile("^\\s*(?:```|~~~)")
	entry = regexp.MustCompile(`^\s*(?:[-*+]|\d+[.)])\s`)
	// whole are lines that cannot be wrapped: tables, headings, definitions of links, and one word however long.
	whole = regexp.MustCompile(`^\s*(?:\||#|\[[^\]]+\]:\s|(?:[-*+]\s+|\d+[.)]\s+|>\s*)?\S+$)`)
)

// wide lists the lines of prose that are too wide. Code is none: between fences, or four columns in, outside of a list.
func wide(text string) (bad []string) {
	fenced, list, blank, code := false, false, true, false
	for i, line := range strings.Split(text, "\n") {
		indented := strings.HasPrefix(line, "    ")
		switch {
		case fence.MatchString(line):
			fenced = !fenced
		case fenced:
		case strings.TrimSpace(line) == "":
			blank = true
			continue
		case entry.MatchString(line) && (list || !indented):
			list = true
		case blank && !strings.HasPrefix(line, " "):
			list = false
		}
		code = indented && !list && (blank || code)
		blank = false
		if n := utf8.RuneCountInString(line); n > proseColumns && !fenced && !code && !whole.MatchString(line) {
			bad = append(bad, fmt.Sprintf("line %d has %d columns", i+1, n))
		}
	}
	return bad
}

// TestWidthOfProse: prose in Markdown has at most 100 columns. What a test prints, and packages bring along, is left out.
func TestWidthOfProse(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, p)
		name = filepath.ToSlash(name)
		switch base := d.Name(); {
		case d.IsDir() && name != "." && (base[0] == '.' || slices.Contains([]string{"testdata", "data", "bin", "demo", "node_modules"}, base)):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".md":
			return nil
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		seen++
		for _, msg := range wide(string(b)) {
			t.Errorf("%s: %s; wrap it at %d", name, msg, proseColumns)
		}
		return nil
	})
	if err != nil || seen < 40 {
		t.Errorf("looked at %d documents, error %v", seen, err)
	}
}

// TestWidthBites shows that a line that is too wide is found, and what cannot be wrapped is not.
func TestWidthBites(t *testing.T) {
	words := strings.Repeat("word ", 21) // 105 columns
	for _, bad := range []string{words, "A\n" + words, "- " + words, "- a\n  " + words, "- a\n\n    " + words, "  1. " + words, "> " + words,
		"```\ncode\n```\n" + words, "- a\n\nb\n    " + words, strings.Repeat("ä ", 51)} {
		if len(wide(bad)) != 1 {
			t.Errorf("%q is taken", bad)
		}
	}
	for _, good := range []string{"| " + words, "# " + words, "    " + words, "a:\n\n    " + words + "\n\n    " + words, "```\n" + words + "\n```", "- " + strings.Repeat("x", 120),
		strings.Repeat("ä ", 50), "[x]: https://" + words, "- a\n\nb\n\n    - " + words} {
		if got := wide(good); len(got) != 0 {
			t.Errorf("%q is refused: %q", good, got)
		}
	}
}
