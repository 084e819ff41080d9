package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// A workflow of the forge, as far as this repository has use for: whatever else it says is an unknown field.
type workflow struct {
	Name        string
	On          map[string]any
	Permissions map[string]string
	Concurrency struct {
		Group            string
		CancelInProgress string `yaml:"cancel-in-progress"`
	}
	Defaults struct{ Run struct{ Shell string } }
	Jobs     map[string]workflowJob
}

type workflowJob struct {
	Name, If    string
	RunsOn      string `yaml:"runs-on"`
	Container   struct{ Image, Options string }
	Timeout     int `yaml:"timeout-minutes"`
	Permissions map[string]string
	Env         map[string]string
	Steps       []struct {
		Name, Uses, Run string
		With            map[string]string
	}
}

var (
	pinned   = regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40}$`)
	usesLine = regexp.MustCompile(`(?m)^\s*(?:- )?uses: (.*)$`)
	release  = regexp.MustCompile(`^\S+ # v\d+\.\d+\.\d+$`)
	makes    = regexp.MustCompile(`(?m)(?:^|[&|;] ?)\s*make((?: [a-z][\w-]*)+)`)
	scripts  = regexp.MustCompile(`\b(?:scripts|examples|tests)/[\w./-]+`)
	rule     = regexp.MustCompile(`(?m)^([a-z][\w-]*):`)
	host     = regexp.MustCompile(`(?i)://|\b[a-z0-9-]+\.(?:com|dev|io|net|org)\b`)
)

// TestWorkflows: what the forge runs is what a person types. Each `make X` is a target and each script is there; actions
// are pinned by commit, with their release beside it; a job may read, ends after some time, and takes nothing of who sent
// a change into its commands. That the runners do what the file says, nobody but the forge can tell.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.y*ml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no workflows: %v", err)
	}
	targets := makeTargets(t)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range workflowFaults(text, targets) {
			t.Errorf("%s: %s", filepath.Base(file), fault)
		}
	}
}

// TestContinuousIntegration: changes are built, linted and tested quickly; main is tested whole, and nothing else is.
func TestContinuousIntegration(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, ".github/workflows/ci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var w workflow
	if err := yaml.Unmarshal(text, &w); err != nil {
		t.Fatal(err)
	}
	for _, event := range []string{"push", "pull_request"} {
		if filter, ok := w.On[event]; !ok || filter != nil {
			t.Errorf("it does not run on every %s: %v", event, w.On)
		}
	}
	where := map[string]string{} // the condition of the job that runs a target
	for _, j := range w.Jobs {
		for _, s := range j.Steps {
			for _, m := range madeBy(s.Run) {
				where[m] += j.If
			}
			for _, example := range scripts.FindAllString(s.Run, -1) {
				where[filepath.Base(example)] = j.If
			}
		}
	}
	for _, target := range []string{"build", "lint", "test-quick", "failing-lun.sh", "thin-exhaustion.sh", "undercover-clone.sh"} {
		if when, ok := where[target]; !ok || when != "" {
			t.Errorf("%s does not run for every change, but where %q", target, when)
		}
	}
	if when, ok := where["test"]; !ok || when != "github.event_name == 'push' && github.ref == 'refs/heads/main'" {
		t.Errorf("make test runs where %q, which is not main", when)
	}
}

// TestFaultsOfWorkflows: TestWorkflows sees what it is there for.
func TestFaultsOfWorkflows(t *testing.T) {
	good := `name: x
on: { push: }
permissions: { contents: read }
jobs:
  j:
    runs-on: ubuntu-latest
    timeout-minutes: 5
    steps:
      - name: Check out
        uses: a/b@0123456789012345678901234567890123456789 # v1.2.3
      - name: Build
        run: make build
`
	targets := map[string]bool{"build": true}
	if faults := workflowFaults([]byte(good), targets); len(faults) != 0 {
		t.Fatalf("a good one has %q", faults)
	}
	for _, c := range []struct{ from, to, fault string }{
		{"make build", "make biuld", "no target"},
		{"make build", "make build && scripts/none.sh", "scripts/none.sh"},
		{"make build", "echo ${{ github.head_ref }}", "expression"},
		{"make build", "make build # see registry.example.org", "host"},
		{"make build", "make build ${{ secrets.X }}", "secret"},
		{"0123456789012345678901234567890123456789 # v1.2.3", "v1", "not pinned"},
		{" # v1.2.3", "", "no release"},
		{"contents: read", "contents: write", "contents: write"},
		{"permissions: { contents: read }\n", "", "no permissions"},
		{"    timeout-minutes: 5\n", "", "ends after 0 minutes"},
		{"push:", "pull_request_target:", "pull_request_target"},
		{"runs-on: ubuntu-latest\n", "runs-on: ubuntu-latest\n    permissions: { id-token: write }\n", "id-token: write"},
		{"runs-on:", "run-on:", "unknown field"},
	} {
		faults := strings.Join(workflowFaults([]byte(strings.Replace(good, c.from, c.to, 1)), targets), "\n")
		if !strings.Contains(faults, c.fault) {
			t.Errorf("%q in place of %q: want %q, found %q", c.to, c.from, c.fault, faults)
		}
	}
}

// workflowFaults returns what is wrong with a workflow.
func workflowFaults(text []byte, targets map[string]bool) (faults []string) {
	say := func(words ...string) { faults = append(faults, strings.Join(words, " ")) }
	var w workflow
	if err := yaml.UnmarshalWithOptions(text, &w, yaml.DisallowUnknownField()); err != nil {
		return []string{err.Error()}
	}
	if len(w.Permissions) == 0 {
		say("it has no permissions of its own, and would get the repository's")
	}
	if _, ok := w.On["pull_request_target"]; ok {
		say("pull_request_target runs what a stranger sends with the repository's rights")
	}
	if strings.Contains(string(text), "secrets.") {
		say("it takes a secret")
	}
	if at := host.FindString(string(text)); at != "" {
		say("it names a host:", at)
	}
	for _, m := range usesLine.FindAllStringSubmatch(string(text), -1) {
		if !release.MatchString(m[1]) {
			say(m[1], "has no release beside the commit")
		}
	}
	faults = append(faults, writes(w.Permissions)...)
	for name, j := range w.Jobs {
		for _, fault := range jobFaults(j, targets) {
			say("job "+name+":", fault)
		}
	}
	return faults
}

// jobFaults returns what is wrong with a job.
func jobFaults(j workflowJob, targets map[string]bool) (faults []string) {
	say := func(words ...string) { faults = append(faults, strings.Join(words, " ")) }
	faults = writes(j.Permissions)
	if j.Timeout < 1 || j.Timeout > 360 {
		say("it ends after", strconv.Itoa(j.Timeout), "minutes")
	}
	if !strings.HasPrefix(j.RunsOn, "ubuntu-") || len(j.Steps) == 0 {
		say("it has no steps, or no runner")
	}
	for _, s := range j.Steps {
		if s.Name == "" || (s.Uses == "") == (s.Run == "") {
			say("a step without a name, or that does not do one thing:", s.Name, s.Uses, s.Run)
		}
		if s.Uses != "" && !pinned.MatchString(s.Uses) {
			say(s.Uses, "is not pinned by its commit")
		}
		if strings.Contains(s.Run, "${{") {
			say("an expression in a command is filled in before a shell reads it:", s.Run)
		}
		for _, target := range madeBy(s.Run) {
			if !targets[target] {
				say("there is no target", target)
			}
		}
		for _, path := range scripts.FindAllString(s.Run, -1) {
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				say(err.Error())
			}
		}
	}
	return faults
}

// writes returns the permissions that are for more than to read.
func writes(permissions map[string]string) (faults []string) {
	for what, may := range permissions {
		if may != "read" && may != "none" {
			faults = append(faults, "it may do more than read, "+what+": "+may)
		}
	}
	return faults
}

// madeBy returns the targets that a command makes.
func madeBy(command string) (targets []string) {
	for _, m := range makes.FindAllStringSubmatch(command, -1) {
		targets = append(targets, strings.Fields(m[1])...)
	}
	return targets
}

// makeTargets returns the targets of the Makefile and of what it includes.
func makeTargets(t *testing.T) map[string]bool {
	targets := map[string]bool{}
	for _, file := range []string{"Makefile", "scripts/vm/vm.mk"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range rule.FindAllStringSubmatch(string(text), -1) {
			targets[m[1]] = true
		}
	}
	return targets
}
