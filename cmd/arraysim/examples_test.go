package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestWorkflowExample: the workflow among the examples is one, each of its steps does one thing, and what it
// runs of this repository is there. tests/test_examples.py runs its last step.
func TestWorkflowExample(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "examples/scripts/ci-failing-lun.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var w struct {
		Name        string
		On          []string
		Permissions map[string]string
		Jobs        map[string]struct {
			RunsOn  string `yaml:"runs-on"`
			Timeout int    `yaml:"timeout-minutes"`
			Steps   []struct {
				Name, Uses, Run string
				With            map[string]string
			}
		}
	}
	if err := yaml.UnmarshalWithOptions(text, &w, yaml.DisallowUnknownField()); err != nil {
		t.Fatal(err)
	}
	if len(w.On) == 0 || len(w.Jobs) != 1 || w.Permissions["contents"] != "read" {
		t.Errorf("it is read as %+v", w)
	}
	changes, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	checkout, ran := "", ""
	for name, j := range w.Jobs {
		if j.RunsOn == "" || j.Timeout == 0 || len(j.Steps) == 0 {
			t.Errorf("job %s is %+v", name, j)
		}
		for _, s := range j.Steps {
			if s.Name == "" || (s.Uses == "") == (s.Run == "") {
				t.Errorf("a step uses %q and runs %q", s.Uses, s.Run)
			}
			if strings.HasPrefix(s.Uses, "actions/checkout@") {
				checkout = s.With["path"]
				if v, ok := strings.CutPrefix(s.With["ref"], "v"); !ok || !strings.Contains(string(changes), "\n## ["+v+"]") {
					t.Errorf("it checks out %q, which is no version of CHANGELOG.md", s.With["ref"])
				}
			}
			ran += s.Run + "\n"
			for key, f := range s.With {
				if key == "repository" {
					continue
				}
				if rest, ok := strings.CutPrefix(f, checkout+"/"); ok && checkout != "" {
					if _, err := os.Stat(filepath.Join(root, rest)); err != nil {
						t.Error(err)
					}
				}
			}
		}
	}
	if !strings.Contains(ran, "make -C "+checkout+" build") || !strings.Contains(ran, checkout+"/examples/scripts/failing-lun.sh") {
		t.Errorf("it runs %s", ran)
	}
	if !strings.Contains(ran, " qemu-block-extra") { // qemu's driver for iscsi:// is in there
		t.Errorf("qemu reaches no LUN by what it installs: %s", ran)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil || !strings.Contains(string(makefile), "\nbuild:") {
		t.Errorf("there is no make build: %v", err)
	}
}
