// Package examples tests the programs in the folders beside it.
package examples

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the programs print to their output.txt")

// TestExamples compiles each program, runs it, and compares what it prints with its output.txt: the same seed is
// the same output, on every machine. A policy takes no more than 40 lines: that is the longest file here, with its
// package clause, imports, comments and empty lines.
func TestExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	programs, err := filepath.Glob("*/main.go")
	if err != nil || len(programs) < 5 {
		t.Fatalf("found %v, %v", programs, err)
	}
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-ldflags=-s", "-o", bin+"/", "./...").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		name := filepath.Dir(p)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(string(readme), "]("+name+"/main.go)") {
				t.Error("README.md has no link to it")
			}
			files, err := filepath.Glob(filepath.Join(name, "*.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				source, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				if n := bytes.Count(source, []byte("\n")); n > 40 {
					t.Errorf("%s has %d lines", f, n)
				}
			}
			cmd := exec.Command(filepath.Join(bin, name))
			cmd.Dir = name
			got, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, got)
			}
			file := filepath.Join(name, "output.txt")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || string(got) != string(want) {
				t.Errorf("it prints\n%sand not\n%s(%v); go test ./examples -update writes it down", got, want, err)
			}
		})
	}
}
