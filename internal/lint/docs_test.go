package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// definedTests returns the names of all tests, fuzz targets and benchmarks, of Go and Python.
func definedTests(t *testing.T) map[string]bool {
	t.Helper()
	defined := map[string]bool{}
	definition := regexp.MustCompile(`(?m)^(?:func|def) ((?:Test|Fuzz|Benchmark|test_)\w+)`)
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, p)
		switch {
		case d.IsDir() && name != "." && (d.Name()[0] == '.' || d.Name() == "bin" || d.Name() == "data" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, "_test.go") && !(strings.HasPrefix(d.Name(), "test_") && strings.HasSuffix(name, ".py")):
			return nil
		}
		b, err := os.ReadFile(p)
		for _, m := range definition.FindAllSubmatch(b, -1) {
			defined[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return defined
}

// TestNamedTestsExist: the tests that documents name as their proof are there.
func TestNamedTestsExist(t *testing.T) {
	defined := definedTests(t)
	for _, doc := range []string{"limits.md", "security.md", "durability.md"} {
		b, err := os.ReadFile(filepath.Join(root, "docs", doc))
		if err != nil {
			t.Fatal(err)
		}
		found := testName.FindAllSubmatch(b, -1)
		if len(found) < 5 {
			t.Errorf("docs/%s names %d tests: the pattern does not find them", doc, len(found))
		}
		for _, m := range found {
			if !defined[string(m[1])] {
				t.Errorf("docs/%s names %s, which does not exist", doc, m[1])
			}
		}
	}
}

// TestReadingOrderIsThere: the files that docs/README.md names for a reader of the source are there, the
// first of each step by its whole path and the others from that one's folder.
func TestReadingOrderIsThere(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(b), "\n## Reading the source\n")
	steps := regexp.MustCompile(`(?m)^\d+\. `).Split(section, -1)[1:]
	if len(steps) < 5 {
		t.Fatalf("%d steps are found", len(steps))
	}
	for _, step := range steps {
		folder := ""
		for _, m := range regexp.MustCompile("`(\\w+(?:/\\w+)+(?:\\.go)?|\\w+\\.go)`").FindAllStringSubmatch(step, -1) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err == nil {
				folder = filepath.Dir(m[1])
			} else if _, err := os.Stat(filepath.Join(root, folder, m[1])); folder == "" || err != nil {
				t.Errorf("docs/README.md names %s for a reader, which is not there", m[1])
			}
		}
	}
}

// TestDocumentsAreWhole: nothing is left to be filled in, and what they link to is there.
func TestDocumentsAreWhole(t *testing.T) {
	list, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	decisions, err := filepath.Glob(filepath.Join(root, "docs", "decisions", "*.md"))
	if err != nil || len(list) < 10 || len(decisions) < 5 {
		t.Fatalf("found %d documents and %d decisions, error %v", len(list), len(decisions), err)
	}
	unfinished := regexp.MustCompile(`@@\w*@@|\b(?:TODO|FIXME|XXX|TBD)\b`)
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	list = append(list, decisions...)
	for _, name := range []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"} {
		list = append(list, filepath.Join(root, name))
	}
	for _, doc := range list {
		b, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		if m := unfinished.Find(b); m != nil {
			t.Errorf("%s: %s", doc, m)
		}
		for _, m := range link.FindAllSubmatch(b, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), string(m[1]))); err != nil {
				t.Errorf("%s links to %s, which is not there", doc, m[1])
			}
		}
	}
}

// TestIndexIsWhole: docs/README.md links to every document beside it.
func TestIndexIsWhole(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(list) < 15 {
		t.Fatalf("found %d documents, error %v", len(list), err)
	}
	for _, doc := range list {
		if name := filepath.Base(doc); name != "README.md" && !strings.Contains(string(b), "]("+name+")") {
			t.Errorf("docs/README.md has no link to %s", name)
		}
	}
}

// TestVersionsAreLinked: each version of CHANGELOG.md has a link, and the first one fixes nothing that nobody has had.
func TestVersionsAreLinked(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	versions := regexp.MustCompile(`(?m)^## \[(.+?)\]`).FindAllSubmatch(b, -1)
	if len(versions) == 0 {
		t.Fatal("found no version")
	}
	for _, v := range versions {
		if !regexp.MustCompile(`(?m)^\[` + regexp.QuoteMeta(string(v[1])) + `\]: https://\S+$`).Match(b) {
			t.Errorf("version %s has no link", v[1])
		}
	}
	first := b[strings.LastIndex(string(b), "\n## ["):]
	if strings.Contains(string(first), "\n### Fixed") {
		t.Error("the first version fixes something: nobody has had it otherwise")
	}
}
