package lint

import (
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestAllOfVet: scripts/lint has every analyzer that go vet has.
func TestAllOfVet(t *testing.T) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	theirs := analyzers(t, filepath.Join(strings.TrimSpace(string(goroot)), "src", "cmd", "vet", "main.go"))
	ours := analyzers(t, filepath.Join(root, "scripts", "lint", "main.go"))
	if len(theirs) < 30 {
		t.Fatalf("go vet has %d analyzers: they are not found", len(theirs))
	}
	for _, a := range theirs {
		if !slices.Contains(ours, a) {
			t.Errorf("scripts/lint lacks %s of go vet", a)
		}
	}
}

// analyzers returns the packages of analyzers that a file imports.
func analyzers(t *testing.T, name string) (found []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range f.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if short, is := strings.CutPrefix(path, "golang.org/x/tools/go/analysis/passes/"); is {
			found = append(found, short)
		}
	}
	return found
}
