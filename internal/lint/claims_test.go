package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// claimless are the sections of documents of claims that say what is assumed or not defended: they
// need no test.
var claimless = []string{"## Who is trusted", "## What is not defended"}

var testName = regexp.MustCompile("`((?:Test|Fuzz|Benchmark|test_)\\w+)`")

// unproved returns what of a document of claims names no test, or one that does not exist. A claim
// is a row of a table, or a paragraph that neither introduces the document nor stands right before
// a table.
func unproved(text string, exists func(string) bool) (bad []string) {
	section, tables := "", 0
	blocks := strings.Split(text, "\n\n")
	for i, b := range blocks {
		b = strings.TrimSpace(b)
		switch {
		case b == "":
		case strings.HasPrefix(b, "#"):
			section = b
		case strings.HasPrefix(b, "|"):
			tables++
			bad = append(bad, unprovedRows(b, exists)...)
		default:
			heads := i+1 < len(blocks) && strings.HasPrefix(strings.TrimSpace(blocks[i+1]), "|")
			introduces := tables == 0 && strings.HasPrefix(section, "# ")
			bad = append(bad, missing(b, exists, !heads && !introduces && !slices.Contains(claimless, section))...)
		}
	}
	if tables == 0 {
		bad = append(bad, "there is no table: the claims are not found")
	}
	return bad
}

func unprovedRows(table string, exists func(string) bool) (bad []string) {
	rows := strings.Split(table, "\n")
	if len(rows) < 3 || !strings.HasPrefix(strings.TrimSpace(rows[1]), "| ---") {
		return []string{"a table without a head: " + rows[0]}
	}
	columns := strings.Count(rows[0], "|")
	for _, row := range rows[2:] {
		cells := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
		if strings.Count(row, "|") != columns {
			bad = append(bad, "another number of columns than in the head: "+row)
		}
		for _, m := range missing(cells[len(cells)-1], exists, true) {
			bad = append(bad, strings.TrimSpace(cells[0])+": "+m)
		}
	}
	return bad
}

// missing says what is wrong with the tests that a claim names.
func missing(claim string, exists func(string) bool, must bool) (bad []string) {
	names := testName.FindAllStringSubmatch(claim, -1)
	if must && len(names) == 0 {
		return []string{fmt.Sprintf("%.60q names no test", claim)}
	}
	for _, m := range names {
		if !exists(m[1]) {
			bad = append(bad, m[1]+" does not exist")
		}
	}
	return bad
}

// TestClaimsNameTests: whoever writes down what the array keeps somebody from, or where its limits
// are, names the test that shows it.
func TestClaimsNameTests(t *testing.T) {
	defined := definedTests(t)
	for _, doc := range []string{"limits.md", "security.md"} {
		b, err := os.ReadFile(filepath.Join(root, "docs", doc))
		if err != nil {
			t.Fatal(err)
		}
		for _, msg := range unproved(string(b), func(name string) bool { return defined[name] }) {
			t.Errorf("docs/%s: %s", doc, msg)
		}
	}
}

// TestClaimRulesBite shows that the check above can fail.
func TestClaimRulesBite(t *testing.T) {
	const head = "# Title\n\nWhat this is.\n\n| what | limit | shown by |\n| --- | --- | --- |\n"
	for _, row := range []struct{ what, text, says string }{
		{"all is well", head + "| a | 1 | `TestThere` |\n\nMore of it (`TestThere`).\n\n## Who is trusted\n\nThe user.", ""},
		{"several tests", head + "| a | 1 | `TestThere`, `TestThere` (a/b) |", ""},
		{"a row without a test", head + "| a | 1 | `TestThere` |\n| b | 2 | |", "b: "},
		{"a row with a test in another column", head + "| a | `TestThere` | yes |", "names no test"},
		{"a row whose test does not exist", head + "| a | 1 | `TestGone` |", "TestGone does not exist"},
		{"one of several does not", head + "| a | 1 | `TestThere`, `FuzzGone` |", "FuzzGone does not exist"},
		{"a test in the introduction that does not exist", "# Title\n\nSee `TestGone`.\n\n" + head[len("# Title\n\nWhat this is.\n\n"):] + "| a | 1 | `TestThere` |", "TestGone does not exist"},
		{"a sentence without a test", head + "| a | 1 | `TestThere` |\n\nIt cannot happen.", "names no test"},
		{"an entry of a list without one", head + "| a | 1 | `TestThere` |\n\n## The process\n\n- It cannot happen.", "names no test"},
		{"a row that is cut off", head + "| a | `TestThere` |", "number of columns"},
		{"no table", "# Title\n\nAll is well.", "no table"},
	} {
		got := strings.Join(unproved(row.text, func(name string) bool { return name == "TestThere" }), "\n")
		if row.says == "" && got != "" || row.says != "" && !strings.Contains(got, row.says) {
			t.Errorf("%s: got %q, want %q", row.what, got, row.says)
		}
	}
}
