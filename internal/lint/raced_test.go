package lint

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
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
	script, err := os.ReadFile(filepath.Join(root, "scripts", "test.py"))
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?s)\nCONCURRENT = """(.*?)"""`).FindSubmatch(script)
	if list == nil {
		t.Fatal("scripts/test.py has no list of packages for the race detector")
	}
	patterns := strings.Fields(string(list[1]))
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
	script, err := os.ReadFile(filepath.Join(root, "scripts", "test.py"))
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?s)\nLONG = """(.*?)"""`).FindSubmatch(script)
	if list == nil {
		t.Fatal("scripts/test.py has no list of long tests")
	}
	found := map[string]int{}
	eachFile(t, func(_, _ string, f *ast.File) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				found[fn.Name.Name]++
			}
		}
	})
	for _, name := range strings.Fields(string(list[1])) {
		if found[name] != 1 {
			t.Errorf("LONG of scripts/test.py has %s, of which there are %d", name, found[name])
		}
	}
}
