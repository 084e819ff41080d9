// Command arraysim simulates a storage array that real SCSI initiators use.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/admin"
)

// Exit statuses.
const (
	exitFailed = 1
	exitUsage  = 2
	exitRuns   = 3 // all rows of a sweep are written, and some are of runs that failed
)

// exitError is an error with an exit status of its own.
type exitError struct {
	error
	status int
}

// app is what all commands share.
type app struct {
	data    string
	json    bool
	running bool // the arguments made sense: what fails now is no misuse
}

func main() { os.Exit(run()) }

func run() int {
	a := &app{}
	root := a.root()
	// What is printed may hold names that hosts and files gave: no terminal obeys them.
	out := &output{Writer: admin.PrintableWriter(os.Stdout)}
	root.SetOut(out)
	root.SetErr(admin.PrintableWriter(os.Stderr))
	cmd, err := root.ExecuteC()
	if err == nil && out.err != nil {
		a.running, err = true, fmt.Errorf("the output is incomplete: %w", out.err)
	}
	if err == nil {
		return 0
	}
	text := admin.Printable(strings.Join(strings.Fields(err.Error()), " "))
	if text == "" { // said already
		return exitFailed
	}
	if a.running {
		fmt.Fprintln(os.Stderr, "arraysim: "+text)
		if own := (exitError{}); errors.As(err, &own) {
			return own.status
		}
		return exitFailed
	}
	fmt.Fprintln(os.Stderr, "arraysim: "+text+"; see: "+cmd.CommandPath()+" --help")
	return exitUsage
}

// output is the standard output. It remembers that a part of it could not be written, as on a disk that is full: a table is
// printed line by line, and what prints it does not look. Where nobody reads on, nothing is missing.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if err != nil && o.err == nil && !errors.Is(err, syscall.EPIPE) {
		o.err = err
	}
	return n, err
}

// errSilent fails without a word: what is wrong was printed already.
var errSilent = errors.New("")

func (a *app) root() *cobra.Command {
	c := &cobra.Command{
		Use:   "arraysim",
		Short: "A storage array in user space that shows what offloads cost below the host layer",
		Long: `arraysim is a storage array for real SCSI initiators. It shows what arrays hide:
the writes that WRITE SAME, XCOPY and UNMAP cause below the host layer.`,
		Example:       "  arraysim demo                     # a clone by XCOPY, and what it does to another host\n  arraysim serve                    # the array on 127.0.0.1:3260, data in ./data\n  arraysim counters --watch         # both layers, in another terminal",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	c.PersistentFlags().StringVar(&a.data, "data", "", "data folder of the array (default: that of the configuration, else ./data)")
	c.AddCommand(a.serve(), a.volume(), a.pool(), a.export(), a.port(), a.instance(), a.counters(), a.check(), a.sim(), a.bench(), a.compare(), a.profiles(), a.replay(), a.hostcache(), a.version())
	c.AddCommand(a.analyze(), a.report(), a.demo())
	c.AddCommand(a.status(), a.policy(), a.fault(), a.host(), a.events(), a.token(), a.top())
	c.InitDefaultCompletionCmd()
	for _, sub := range c.Commands() {
		if sub.Name() == "completion" {
			sub.Example = "  source <(arraysim completion bash)"
		}
	}
	cobra.AddTemplateFunc("globalFlags", globalFlags)
	usage := c.UsageTemplate()
	for _, by := range [][2]string{
		// A group does nothing by itself.
		{"{{if .Runnable}}\n  {{.UseLine}}", "{{if and .Runnable (not (index .Annotations \"group\"))}}\n  {{.UseLine}}"},
		{"{{if .HasAvailableInheritedFlags}}", "{{if globalFlags .}}"},
		{"{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}", "{{globalFlags . | trimTrailingWhitespaces}}"},
	} {
		if !strings.Contains(usage, by[0]) {
			panic("arraysim: internal error: cobra's usage template lacks " + by[0])
		}
		usage = strings.ReplaceAll(usage, by[0], by[1])
	}
	c.SetUsageTemplate(usage)
	return c
}

// withoutArray are the commands, with all below them, that use no array's data folder.
var withoutArray = []string{"analyze", "bench", "compare", "completion", "hostcache", "profile", "replay", "report", "sim", "version"}

// globalFlags describes the flags of the commands above c that c has a use for.
func globalFlags(c *cobra.Command) string {
	top := c
	for top.HasParent() && top.Parent().HasParent() {
		top = top.Parent()
	}
	flags := pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	c.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "data" || !slices.Contains(withoutArray, top.Name()) {
			flags.AddFlag(f)
		}
	})
	return flags.FlagUsages()
}

// do wraps the body of a command.
func (a *app) do(fn func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.running = true
		return fn(cmd, args)
	}
}

// client talks to the daemon of the data folder.
func (a *app) client() *admin.Client { return admin.NewClient(a.folder()) }

func (a *app) folder() string {
	if a.data == "" {
		return "data"
	}
	return a.data
}

// jsonFlag gives a command --json.
func (a *app) jsonFlag(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&a.json, "json", false, "print JSON, for scripts")
	return c
}

// noDefault keeps the number that means "not given" out of the help.
func noDefault(c *cobra.Command, flag string) { c.Flags().Lookup(flag).DefValue = "0" }

// calledAs is how a shell in this folder calls this program: where it is a clone, as bin/arraysim.
func calledAs() string { return admin.ShellWord(os.Args[0]) }

// terminal reports whether f is one.
func terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// show prints v, as JSON or by table.
func show[T any](a *app, cmd *cobra.Command, v T, table func(io.Writer, T)) error {
	if !a.json {
		table(cmd.OutOrStdout(), v)
		return nil
	}
	e := json.NewEncoder(cmd.OutOrStdout())
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// group is a command that only has others.
func group(use, short, example string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Example: example, Args: cobra.NoArgs, Annotations: map[string]string{"group": "yes"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.New(cmd.Name() + " needs a command")
		}}
}
