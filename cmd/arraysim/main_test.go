package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/arraysim/arraysim/internal/admin"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"arraysim": main}) }

// startTimeout bounds how long a daemon may take to be ready in a script.
const startTimeout = 2 * time.Minute

// TestScripts runs testdata/script. Beside the usual commands there are
//
//	ready DIR             waits until the daemon of a data folder answers
//	stop DIR              sends it SIGTERM
//	status N COMMAND...   runs a command and wants this exit status
//	mode FILE PERM        wants a file to have this mode
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"ready":  waitReady,
			"stop":   stop,
			"status": wantStatus,
			"mode":   wantMode,
		},
	})
}

func waitReady(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: ready DIR")
	}
	client := admin.NewClient(ts.MkAbs(args[0]))
	for end := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		s, err := client.Status(context.Background())
		if err == nil {
			ts.Setenv("PORTAL", s.Portal)
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("the daemon is not ready: %v", err)
		}
	}
}

func stop(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: stop DIR")
	}
	s, err := admin.NewClient(ts.MkAbs(args[0])).Status(context.Background())
	ts.Check(err)
	ts.Check(syscall.Kill(s.PID, syscall.SIGTERM))
}

func wantStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit status %d, want %s", code, args[0])
	}
}

func wantMode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mode FILE PERM")
	}
	st, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	if got := strconv.FormatUint(uint64(st.Mode().Perm()), 8); got != args[1] {
		ts.Fatalf("%s has mode %s, want %s", args[0], got, args[1])
	}
}

// Every command shows how it is used and says what it does.
func TestEveryCommandHasAnExample(t *testing.T) {
	seen := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		seen++
		if c.Short == "" {
			t.Errorf("%s has no description", c.CommandPath())
		}
		if !strings.Contains(c.Example, "arraysim") && c.Parent().Name() != "completion" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for line := range strings.Lines(c.Long) {
			if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > 100 && c.Parent().Name() != "completion" {
				t.Errorf("%s: a line of %d columns, of 100 at most: %s", c.CommandPath(), n, line)
			}
		}
		if len(c.Short) > 84 {
			t.Errorf("%s: a list of commands has no room for %q", c.CommandPath(), c.Short)
		}
		for _, sub := range c.Commands() {
			if sub.Name() != "help" {
				walk(sub)
			}
		}
	}
	walk((&app{}).root())
	if seen < 20 {
		t.Errorf("looked at %d commands only", seen)
	}
}

// The help of a flag names its default once, and its value by one word.
func TestHelpOfFlags(t *testing.T) {
	seen := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		look := func(f *pflag.Flag) {
			seen++
			if name, _ := pflag.UnquoteUsage(f); strings.ContainsAny(name, " ") {
				t.Errorf("%s --%s: the value is called %q", c.CommandPath(), f.Name, name)
			}
			one := pflag.NewFlagSet("", pflag.ContinueOnError)
			one.AddFlag(f)
			if text := one.FlagUsages(); strings.Count(text, "(default") > 1 {
				t.Errorf("%s: two defaults: %s", c.CommandPath(), strings.TrimSpace(text))
			}
		}
		c.Flags().VisitAll(look)
		c.PersistentFlags().VisitAll(look)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk((&app{}).root())
	if seen < 100 {
		t.Errorf("looked at %d flags only", seen)
	}
}

// Every script says what it guards.
func TestScriptsAreHeaded(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(b), "# Guards: ") {
			t.Errorf("%s does not begin with what it guards", f)
		}
	}
}
