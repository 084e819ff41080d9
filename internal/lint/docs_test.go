package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNamedTestsExist: the tests that documents name as their proof are there.
func TestNamedTestsExist(t *testing.T) {
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
	named := regexp.MustCompile("`((?:Test|Fuzz|Benchmark|test_)\\w+)`")
	for _, doc := range []string{"limits.md", "security.md", "durability.md"} {
		b, err := os.ReadFile(filepath.Join(root, "docs", doc))
		if err != nil {
			t.Fatal(err)
		}
		found := named.FindAllSubmatch(b, -1)
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
