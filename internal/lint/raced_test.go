package lint

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unraced lists packages that have goroutines or locks and whose tests `make test` runs without the race detector.
var unraced = map[string]string{
	"fit":        "candidates that share nothing, tried side by side; minutes under the detector",
	"experiment": "a count for the progress of runs in virtual time",
	"report":     "two readers of files, side by side; minutes under the detector",
	// With these, the detector's build takes a third longer: they bring Parquet, WebAssembly and linear algebra with them.
	"cmd/arraysim": "waits for what admin, iscsi and their like run, which are raced",
	"sweep":        "runs that share nothing, side by side, and a channel of their rows",
	"trace":        "a count of bytes that whoever shows progress reads",
	"wasm":         "a count of calls by which a watch finds those that hang",
}

// TestConcurrentPackagesAreRaced: a package with a goroutine or a lock is among those that `make test` gives to the
// race detector, or has a reason here.
func TestConcurrentPackagesAreRaced(t *testing.T) {
	patterns := listOf(t, "CONCURRENT")
	needs := map[string]string{}
	eachFile(t, func(pkg, name string, f *ast.File) {
		if strings.HasSuffix(name, "_test.go") || needs[filepath.Dir(name)] != "" {
			return
		}
		if why := concurrent(f); why != "" {
			needs[filepath.Dir(name)] = why
		}
	})
	if len(needs) < 15 {
		t.Fatalf("found %d packages with goroutines or locks: the test does not find the source", len(needs))
	}
	for dir, why := range needs {
		short := strings.TrimPrefix(dir, "internal/")
		if raced(patterns, dir) == (unraced[short] != "") {
			t.Errorf("%s has %s: give it to the race detector (CONCURRENT in scripts/test.py), or say here why not", dir, why)
		}
	}
	for short := range unraced {
		if needs["internal/"+short] == "" && needs[short] == "" {
			t.Errorf("%s has nothing to race any more", short)
		}
	}
}

// listOf returns a list of words of scripts/test.py.
func listOf(t *testing.T, name string) []string {
	t.Helper()
	script, err := os.ReadFile(filepath.Join(root, "scripts", "test.py"))
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?s)\n` + name + ` = (?:"""(.*?)"""|\["(.*?)"\])`).FindSubmatch(script)
	if list == nil {
		t.Fatalf("scripts/test.py has no list %s", name)
	}
	return strings.Fields(string(list[1]) + string(list[2]))
}

// concurrent says what of a file makes goroutines meet, "" if nothing does.
func concurrent(f *ast.File) (why string) {
	for _, p := range imports(f) {
		if p == "sync" || p == "sync/atomic" {
			why = "an import of " + p
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if _, is := n.(*ast.GoStmt); is {
			why = "a go statement"
		}
		return true
	})
	return why
}

// raced tells whether a list of packages, as the go command takes them, names a folder.
func raced(patterns []string, dir string) bool {
	for _, p := range patterns {
		p = strings.TrimPrefix(p, "./")
		if all, below := strings.CutSuffix(p, "/..."); dir == p || below && (dir == all || strings.HasPrefix(dir, all+"/")) {
			return true
		}
	}
	return false
}

// TestLongTestsExist: what scripts/test.py leaves out of short runs by name is a test, or nobody would notice that it is back.
func TestLongTestsExist(t *testing.T) {
	found := map[string]int{}
	eachFile(t, func(_, _ string, f *ast.File) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				found[fn.Name.Name]++
			}
		}
	})
	for _, name := range listOf(t, "LONG") {
		if found[name] != 1 {
			t.Errorf("LONG of scripts/test.py has %s, of which there are %d", name, found[name])
		}
	}
}

// testFile is a file of tests of a raced package: its folder, its build constraint, and its tests.
type testFile struct {
	dir, built string
	tests      []string
}

// unrun says which tests of raced packages `make test` runs nowhere: the part race leaves out those of some names and what
// is not built for it, and the part unraced has those of some names in some packages. away are names that race leaves out,
// back those that unraced has in the packages besides.
func unrun(files []testFile, away, back, besides []string) (bad []string) {
	seen, used := map[string]bool{}, map[string]bool{}
	for _, f := range files {
		excluded := strings.Contains(f.built, "!race") || strings.Contains(f.built, "!noparquet")
		for _, name := range f.tests {
			seen[name] = true
			again := slices.Contains(back, name) && slices.Contains(besides, "./"+f.dir)
			used["./"+f.dir] = used["./"+f.dir] || again
			if (excluded || slices.Contains(away, name)) && !again {
				bad = append(bad, f.dir+" has "+name+", which runs neither with the race detector nor without it")
			}
		}
	}
	for _, name := range back {
		if !seen[name] {
			bad = append(bad, "no raced package has "+name)
		}
	}
	for _, dir := range besides {
		if !used[dir] {
			bad = append(bad, dir+" has nothing to run without the race detector")
		}
	}
	return bad
}

// TestEveryTestRunsSomewhere: what the race detector does not run of a raced package, another part does.
func TestEveryTestRunsSomewhere(t *testing.T) {
	var files []testFile
	patterns, count := listOf(t, "CONCURRENT"), 0
	constraint := regexp.MustCompile(`(?m)^//go:build (.*)$`)
	eachFile(t, func(_, name string, f *ast.File) {
		if !strings.HasSuffix(name, "_test.go") || !raced(patterns, filepath.Dir(name)) {
			return
		}
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		file := testFile{dir: filepath.Dir(name)}
		if m := constraint.FindSubmatch(b); m != nil {
			file.built = string(m[1])
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") && fn.Name.Name != "TestMain" {
				file.tests = append(file.tests, fn.Name.Name)
				count++
			}
		}
		files = append(files, file)
	})
	if count < 500 {
		t.Fatalf("found %d tests of raced packages: the test does not find them", count)
	}
	away := slices.Concat(listOf(t, "UNCOUNTED"), listOf(t, "COMPUTES"))
	back := slices.Concat(away, listOf(t, "UNRACED"))
	for _, msg := range unrun(files, away, back, listOf(t, "BESIDES")) {
		t.Error(msg)
	}
}

// TestUnrunTestsAreFound shows that the check above can fail.
func TestUnrunTestsAreFound(t *testing.T) {
	away, back, besides := []string{"TestAway"}, []string{"TestAway", "TestTwice"}, []string{"./internal/a"}
	good := []testFile{{"internal/a", "", []string{"TestAway", "TestTwice", "TestOther"}}}
	for _, row := range []struct {
		more testFile
		says string
	}{
		{testFile{"internal/b", "", []string{"TestTwice"}}, ""}, // it runs with the race detector
		{testFile{"internal/b", "race", []string{"TestOther"}}, ""},
		{testFile{"internal/a", "!race", []string{"TestTwice"}}, ""},
		{testFile{"internal/b", "", []string{"TestAway"}}, "internal/b has TestAway, which"},
		{testFile{"internal/a", "!race", []string{"TestOther"}}, "internal/a has TestOther, which"},
		{testFile{"internal/a", "!noparquet && linux", []string{"TestOther"}}, "internal/a has TestOther, which"},
	} {
		if got := strings.Join(unrun(append(good, row.more), away, back, besides), "\n"); (row.says == "") != (got == "") || !strings.HasPrefix(got, row.says) {
			t.Errorf("%+v: got %q, want %q", row.more, got, row.says)
		}
	}
	if got := unrun(good, away, append(back, "TestGone"), append(besides, "./internal/c")); len(got) != 2 {
		t.Errorf("a test that is gone, and a package without any: %q", got)
	}
}
