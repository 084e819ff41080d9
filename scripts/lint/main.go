// Command lint runs go vet's analyzers and staticcheck's in one pass over the packages: they share the parsing, the
// types and what is computed for dependencies, which is most of the time that either takes. It has staticcheck's flags
// and output, and one form of its own, for the builds that tags make:
//
//	lint ./...
//	lint -variant TAGS PACKAGES...
//
// It is a module of its own, so that nobody who builds arraysim gets its dependencies.
package main

import (
	"fmt"
	"go/build"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/appends"
	"golang.org/x/tools/go/analysis/passes/asmdecl"
	"golang.org/x/tools/go/analysis/passes/assign"
	"golang.org/x/tools/go/analysis/passes/atomic"
	"golang.org/x/tools/go/analysis/passes/bools"
	"golang.org/x/tools/go/analysis/passes/buildtag"
	"golang.org/x/tools/go/analysis/passes/cgocall"
	"golang.org/x/tools/go/analysis/passes/composite"
	"golang.org/x/tools/go/analysis/passes/copylock"
	"golang.org/x/tools/go/analysis/passes/defers"
	"golang.org/x/tools/go/analysis/passes/directive"
	"golang.org/x/tools/go/analysis/passes/errorsas"
	"golang.org/x/tools/go/analysis/passes/framepointer"
	"golang.org/x/tools/go/analysis/passes/hostport"
	"golang.org/x/tools/go/analysis/passes/httpresponse"
	"golang.org/x/tools/go/analysis/passes/ifaceassert"
	"golang.org/x/tools/go/analysis/passes/loopclosure"
	"golang.org/x/tools/go/analysis/passes/lostcancel"
	"golang.org/x/tools/go/analysis/passes/nilfunc"
	"golang.org/x/tools/go/analysis/passes/printf"
	"golang.org/x/tools/go/analysis/passes/shift"
	"golang.org/x/tools/go/analysis/passes/sigchanyzer"
	"golang.org/x/tools/go/analysis/passes/slog"
	"golang.org/x/tools/go/analysis/passes/stdmethods"
	"golang.org/x/tools/go/analysis/passes/stdversion"
	"golang.org/x/tools/go/analysis/passes/stringintconv"
	"golang.org/x/tools/go/analysis/passes/structtag"
	"golang.org/x/tools/go/analysis/passes/testinggoroutine"
	"golang.org/x/tools/go/analysis/passes/tests"
	"golang.org/x/tools/go/analysis/passes/timeformat"
	"golang.org/x/tools/go/analysis/passes/unmarshal"
	"golang.org/x/tools/go/analysis/passes/unreachable"
	"golang.org/x/tools/go/analysis/passes/unsafeptr"
	"golang.org/x/tools/go/analysis/passes/unusedresult"
	"golang.org/x/tools/go/analysis/passes/waitgroup"
	"honnef.co/go/tools/analysis/lint"
	"honnef.co/go/tools/lintcmd"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
	"honnef.co/go/tools/unused"
)

// vet is the suite of go vet (cmd/vet of Go 1.26).
var vet = []*analysis.Analyzer{
	appends.Analyzer, asmdecl.Analyzer, assign.Analyzer, atomic.Analyzer, bools.Analyzer, buildtag.Analyzer,
	cgocall.Analyzer, composite.Analyzer, copylock.Analyzer, defers.Analyzer, directive.Analyzer, errorsas.Analyzer,
	framepointer.Analyzer, hostport.Analyzer, httpresponse.Analyzer, ifaceassert.Analyzer, loopclosure.Analyzer,
	lostcancel.Analyzer, nilfunc.Analyzer, printf.Analyzer, shift.Analyzer, sigchanyzer.Analyzer, slog.Analyzer,
	stdmethods.Analyzer, stdversion.Analyzer, stringintconv.Analyzer, structtag.Analyzer, testinggoroutine.Analyzer,
	tests.Analyzer, timeformat.Analyzer, unmarshal.Analyzer, unreachable.Analyzer, unsafeptr.Analyzer,
	unusedresult.Analyzer, waitgroup.Analyzer,
}

func main() {
	for _, a := range vet {
		complete(a)
	}
	if len(os.Args) > 2 && os.Args[1] == "-variant" {
		if err := variant(os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintf(os.Stderr, "lint with tags %s: %v\n", os.Args[2], err)
			os.Exit(1)
		}
		return
	}
	cmd := lintcmd.NewCommand("lint")
	cmd.ParseFlags(os.Args[1:])
	cmd.AddAnalyzers(simple.Analyzers...)
	cmd.AddAnalyzers(staticcheck.Analyzers...)
	cmd.AddAnalyzers(stylecheck.Analyzers...)
	cmd.AddAnalyzers(unused.Analyzer)
	for _, a := range staticcheck.Analyzers {
		leaveInits(a.Analyzer)
	}
	for _, a := range vet {
		cmd.AddAnalyzers(&lint.Analyzer{
			Analyzer: a,
			Doc:      &lint.RawDocumentation{Title: a.Name, Text: a.Doc, Severity: lint.SeverityWarning},
		})
	}
	cmd.Run()
}

// complete gives an analyzer of go vet what staticcheck's driver leaves out: a way to read files, and the names of those
// that the build leaves out, whose build constraints are checked, too.
func complete(a *analysis.Analyzer) {
	run := a.Run
	a.Run = func(pass *analysis.Pass) (any, error) {
		pass.ReadFile = os.ReadFile
		if len(pass.Files) > 0 && (a == buildtag.Analyzer || a == directive.Analyzer) {
			dir := filepath.Dir(pass.Fset.Position(pass.Files[0].Package).Filename)
			if p, err := build.ImportDir(dir, 0); err == nil {
				for _, name := range p.IgnoredGoFiles {
					pass.IgnoredFiles = append(pass.IgnoredFiles, filepath.Join(dir, name))
				}
			}
		}
		return run(pass)
	}
}

// leaveInits has the analyzer that builds the intermediate representation of a package, which most others require, leave out
// the values of package variables where the package is not ours. Of such a one only facts about its functions are asked
// for, and what no function does has no part in them. A table of a compressor's words alone takes longer than ours all together.
func leaveInits(a *analysis.Analyzer) {
	for _, r := range a.Requires {
		leaveInits(r)
	}
	if a.Name != "buildir" || left[a] {
		return
	}
	left[a] = true
	run := a.Run
	a.Run = func(pass *analysis.Pass) (any, error) {
		if !strings.HasPrefix(pass.Pkg.Path(), "github.com/arraysim/") {
			info, other := *pass.TypesInfo, *pass
			info.InitOrder = nil
			other.TypesInfo = &info
			pass = &other
		}
		return run(pass)
	}
}

// left has the analyzers that leaveInits has changed.
var left = map[*analysis.Analyzer]bool{}
