// Package lint keeps the rules of the source that no linter knows: which package
// may import which, and what the deterministic core must not contain.
package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// directions says who may import whom: in "a < b", b may import a and all that a may
// import. The names are those of the folders in internal, or from the root. A package
// NAMEtest holds fakes and suites for NAME: it may import NAME and what is below it.
const directions = `
	NONE < block, crc32c, metrics, size, stats, tcmu, testkit, tidy, trace, lab/plug, scripts/lint, scripts/race/zstd;

	size < fio;

	metrics < metrics/exposition, metrics/export;

	block, metrics, lab/plug < hostcache;

	NONE < scsi/sam, scsi/cdb, scsi/sgl, scsi/names, scsi/scratch, scsi/threshold;

	block, scsi/sam < scsi/sense;

	metrics, scsi/sam < scsi/counters;

	scsi/sense, scsi/names < scsi/reservation, scsi/pages;

	scsi/sense < scsi/alua;

	block, scsi/sgl < scsi/erase;

	scsi/reservation, scsi/pages, scsi/erase < scsi/saved;

	scsi/cdb, scsi/scratch, scsi/threshold, scsi/counters, scsi/alua, scsi/saved < scsi/server;

	scsi/server < scsi/paramlist, scsi/copylist;

	scsi/paramlist < scsi/spc, scsi/sbc;

	scsi/copylist < scsi/copysource;

	scsi/copysource, scsi/paramlist < scsi/copymgr;

	scsi/spc, scsi/sbc, scsi/copymgr < scsi;

	block < array/layout, array/media;

	NONE < array/ticket;

	array/ticket < array/demand;

	array/layout < array/nvlog, array/alloc, array/window;

	array/nvlog, crc32c, metrics < array/backend;

	array/window < array/node;

	array/alloc, array/window < array/hold;

	array/alloc, array/node < array/home;

	array/alloc, array/node < array/account;

	array/node < array/cutoff;

	array/hold, array/home, array/cutoff, array/demand, array/account < array/extent;

	lab/plug < array/policy;

	array/nvlog, array/alloc, array/policy, crc32c < array/wcache;

	block < array/metadata, array/changelog;

	array/wcache, array/ticket < array/admission;

	array/extent, array/nvlog, array/metadata < array/checkpoint;

	array/alloc, array/media, array/metadata < array/directory;

	array/admission < array/crosspool;

	array/directory, array/extent, array/backend, array/crosspool, array/changelog, metrics < array/pool;

	array/pool < array/check;

	array/extent < array/copying;

	array/pool < array/reading;

	array/extent < array/lookup;

	block < array/answer;

	array/reading, array/lookup, array/copying, array/answer < array/request;

	array/pool, array/checkpoint < array/recovery;

	array/request < array/provision;

	array/provision, array/check, array/recovery < array;

	NONE < store/uring;

	block, crc32c, metrics, store/uring < store;

	block, crc32c, metrics < store/rados;

	store/rados < store/rados/simulated, store/rados/librados;

	hostcache, crc32c < hostcache/tier;

	NONE < buffers;

	scsi, block, metrics, buffers < iscsi;

	iscsi < link;

	iscsi, crc32c < lun;

	tcmu, scsi, array, hostcache, buffers < handlers;

	handlers, tcmu, lun, hostcache/tier, store, trace < cachedaemon;

	lun < handlers/tcmurunner;

	handlers/tcmurunner < handlers/tcmurunner/plugin;

	array, scsi, size, store < profile;

	array, hostcache, hostcache/tier, store, scsi, profile, stats, trace, metrics/exposition < sim;

	lab/plug, size < wasm;

	sim, wasm < lab;

	lab < examples, examples/module, examples/sieve, examples/eviction, examples/admission, examples/throttle, examples/destage, examples/placement;

	trace, hostcache, iscsi, sim < replay;

	sim, tidy, size < sweep;

	sim, metrics/export, size < report;

	sim, size, tidy, wasm, fio, report < experiment;

	sim, iscsi < zerobench;

	fio, report < fit;

	NONE < history;

	array, hostcache, scsi, report, size, store, store/rados, store/rados/librados, profile, iscsi, link, tcmu, handlers, history < admin;

	admin, iscsi < demo;

	admin < top;

	admin, sim, profile < schema;

	admin, cachedaemon, demo, top, experiment, sweep, fit, report, replay, zerobench < cmd/arraysim;
`

// inner lists folders whose packages are a part of the package that the folder is of: nobody else may
// import them, whoever may import that one.
var inner = []string{"array", "scsi"}

// core lists the packages that run in virtual time: same input, same result.
var core = []string{"scsi", "scsi/sam", "scsi/cdb", "scsi/sgl", "scsi/names", "scsi/scratch", "scsi/sense", "scsi/counters", "scsi/reservation",
	"scsi/alua", "scsi/pages", "scsi/erase", "scsi/saved", "scsi/server", "scsi/spc", "scsi/sbc", "scsi/copylist", "scsi/copysource", "scsi/copymgr", "array", "array/layout", "array/nvlog", "array/alloc", "array/account", "array/window", "array/node", "array/cutoff", "array/demand", "array/hold", "array/home", "array/extent",
	"array/backend", "array/policy", "array/media", "array/metadata", "array/ticket", "array/wcache", "array/admission", "array/crosspool",
	"array/check", "array/checkpoint", "array/directory", "array/recovery", "array/provision", "array/changelog", "array/copying", "array/pool", "array/reading", "array/lookup", "array/answer", "array/request", "hostcache", "hostcache/tier", "sim", "lab/plug"}

// outside lists what a deterministic package cannot use, with the reason.
var outside = map[string]string{
	"time":         "time comes from block.Clock, in nanoseconds",
	"math/rand":    "random numbers come from a seeded source that is handed in",
	"math/rand/v2": "random numbers come from a seeded source that is handed in",
	"crypto/rand":  "random numbers come from a seeded source that is handed in",
	"sync":         "the executor serialises the package",
	"sync/atomic":  "the executor serialises the package",
	"os":           "bytes go to a block.Store",
	"net":          "front ends own the sockets",
	"net/http":     "front ends own the sockets",
}

const (
	module = "github.com/arraysim/arraysim"
	root   = "../.."
)

func TestImportDirection(t *testing.T) {
	below, err := parseDirections(directions)
	if err != "" {
		t.Fatal(err)
	}
	found := 0
	eachFile(t, func(pkg, name string, f *ast.File) {
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		found++
		if msg := checkFile(below, pkg, imports(f)); msg != "" {
			t.Errorf("%s: %s", name, msg)
		}
	})
	if found < 50 {
		t.Fatalf("looked at %d files: the test does not find the source", found)
	}
}

// checkFile tells what a file's imports do wrong, "" if nothing.
func checkFile(below map[string]map[string]bool, pkg string, imported []string) string {
	under, isTest := strings.CutSuffix(path.Base(pkg), "test")
	if !isTest {
		under = pkg
	}
	allowed := below[under]
	if allowed == nil {
		return "package " + pkg + " is not in the directions; say there what it may import"
	}
	for _, path := range imported {
		dep := short(path)
		if of, ok := innerOf(dep); ok && !strings.HasPrefix(pkg+"/", of+"/") {
			return pkg + " must not import " + dep + ", a part of " + of
		}
		if dep == "" || allowed[dep] || isTest && dep == under {
			continue
		}
		return pkg + " must not import " + dep + "; it may import " + strings.Join(slices.Sorted(maps.Keys(allowed)), ", ")
	}
	return ""
}

// innerOf returns the package that dep is a part of.
func innerOf(dep string) (of string, ok bool) {
	for _, of := range inner {
		if strings.HasPrefix(dep, of+"/") {
			return of, true
		}
	}
	return "", false
}

// short turns an import path of this module into the name that the directions
// use; other paths give "".
func short(path string) string {
	p, ok := strings.CutPrefix(path, module+"/")
	if !ok {
		return ""
	}
	return strings.TrimPrefix(p, "internal/")
}

// parseDirections returns, for every package, all that it may import.
func parseDirections(text string) (map[string]map[string]bool, string) {
	below := map[string]map[string]bool{}
	for _, rule := range strings.Split(text, ";") {
		if rule = strings.TrimSpace(rule); rule == "" {
			continue
		}
		left, right, ok := strings.Cut(rule, "<")
		if !ok {
			return nil, "no < in " + rule
		}
		for _, b := range names(right) {
			if below[b] == nil {
				below[b] = map[string]bool{}
			}
			for _, a := range names(left) {
				if a == "NONE" {
					continue
				}
				if below[a] == nil {
					return nil, a + " stands on the left of < before it stood on the right"
				}
				below[b][a] = true
				maps.Copy(below[b], below[a])
			}
		}
	}
	for p, deps := range below {
		if deps[p] {
			return nil, p + " is below itself"
		}
	}
	return below, ""
}

func names(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' })
}

// uncalled lists functions that a package must not call, with what it calls instead.
var uncalled = map[string]map[string]string{"cmd/arraysim": {
	"sim.New":   "commands keep flags and printing: let experiment.Work run it, or a package of the command's own",
	"sim.Parse": "commands keep flags and printing: experiment.Load reads a scenario",
}}

// TestCommandsComputeNothing: a command parses flags and prints; what it computes is in a package below internal.
func TestCommandsComputeNothing(t *testing.T) {
	seen := map[string]bool{}
	eachFile(t, func(pkg, name string, f *ast.File) {
		if uncalled[pkg] == nil || strings.HasSuffix(name, "_test.go") {
			return
		}
		seen[pkg] = true
		for _, msg := range calls(f, uncalled[pkg]) {
			t.Errorf("%s: %s", name, msg)
		}
	})
	if len(seen) < len(uncalled) {
		t.Errorf("looked at %v", seen)
	}
}

// calls says which of these functions a file uses. They are named as PACKAGE.NAME, by the last element of the import path,
// whatever the file calls the package.
func calls(f *ast.File, refused map[string]string) (bad []string) {
	named := map[string]string{}
	for _, i := range f.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		local := path.Base(p)
		if i.Name != nil {
			local = i.Name.Name
		}
		named[local] = path.Base(p)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if id, ok := sel.X.(*ast.Ident); ok && named[id.Name] != "" {
			name := named[id.Name] + "." + sel.Sel.Name
			if why := refused[name]; why != "" {
				bad = append(bad, "uses "+name+": "+why)
			}
		}
		return true
	})
	return bad
}

// behindTag lists modules that only files with a build tag import, so that the program without it is static.
var behindTag = map[string]string{"github.com/ebitengine/purego": "//go:build rados && linux\n"}

func TestModulesBehindTags(t *testing.T) {
	found := 0
	eachFile(t, func(_, name string, f *ast.File) {
		for _, dep := range imports(f) {
			tag, ok := behindTag[dep]
			if !ok {
				continue
			}
			found++
			b, err := os.ReadFile(filepath.Join(root, name))
			if err != nil || !strings.HasPrefix(string(b), tag) {
				t.Errorf("%s imports %s and does not begin with %q (%v)", name, dep, tag, err)
			}
		}
	})
	if found < len(behindTag) {
		t.Errorf("found %d imports", found)
	}
}

func TestDeterministicCore(t *testing.T) {
	seen := map[string]bool{}
	eachFile(t, func(pkg, name string, f *ast.File) {
		if !slices.Contains(core, pkg) || strings.HasSuffix(name, "_test.go") {
			return
		}
		seen[pkg] = true
		for _, msg := range impurities(f) {
			t.Errorf("%s: %s", name, msg)
		}
	})
	for _, p := range []string{"scsi", "array"} {
		if !seen[p] {
			t.Errorf("found no file of package %s", p)
		}
	}
}

// impurities lists what a file of the core must not contain.
func impurities(f *ast.File) []string {
	var out []string
	for _, path := range imports(f) {
		if why := outside[path]; why != "" {
			out = append(out, "imports "+path+": "+why)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if _, ok := n.(*ast.GoStmt); ok {
			out = append(out, "starts a goroutine: post to the executor instead")
		}
		return true
	})
	return out
}

func imports(f *ast.File) []string {
	var out []string
	for _, i := range f.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			p = i.Path.Value
		}
		out = append(out, p)
	}
	return out
}

// goFile is a Go file with its name from the root.
type goFile struct {
	name string
	tree *ast.File
}

// goFiles are all Go files, parsed once for all tests, which change none of them.
var goFiles = sync.OnceValues(func() (out []goFile, err error) {
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, p)
		name = filepath.ToSlash(name)
		switch base := d.Name(); {
		case d.IsDir() && name != "." && (base[0] == '.' || base == "testdata" || base == "data" || base == "bin" || name == "internal/lint"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(base, ".go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		out = append(out, goFile{name, f})
		return nil
	})
	return out, err
})

// eachFile calls fn for every Go file with its package in the terms of the
// directions and its name from the root.
func eachFile(t *testing.T, fn func(pkg, name string, f *ast.File)) {
	t.Helper()
	all, err := goFiles()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		fn(short(module+"/"+path.Dir(f.name)), f.name, f.tree)
	}
}

// TestRulesBite shows that the checks above can fail.
func TestRulesBite(t *testing.T) {
	below, msg := parseDirections(directions)
	if msg != "" {
		t.Fatal(msg)
	}
	for _, row := range []struct {
		name, pkg, dep string
		ok             bool
	}{
		{"a layer may use the vocabulary", "array", "internal/block", true},
		{"what is below may be used across layers", "admin", "internal/block", true},
		{"a layer must not use a front end", "array", "internal/iscsi", false},
		{"layers of one height must not know each other", "scsi", "internal/array", false},
		{"the vocabulary uses nothing of ours", "block", "internal/metrics", false},
		{"the kernel door uses nothing of ours", "tcmu", "internal/block", false},
		{"a suite may use what it tests", "scsi/scsitest", "internal/scsi", true},
		{"a suite must not use what its subject cannot", "scsi/scsitest", "internal/array", false},
		{"the array may use its own parts", "array", "internal/array/extent", true},
		{"a part may use what is below it", "array/extent", "internal/array/alloc", true},
		{"a part must not use what is above it", "array/alloc", "internal/array/extent", false},
		{"the ground floor knows no array", "array/extent", "internal/array", false},
		{"the array knows no exposition of its counters", "array", "internal/metrics/exposition", false},
		{"the ground floor knows no counters", "array/alloc", "internal/metrics", false},
		{"a command set uses the device server", "scsi/sbc", "internal/scsi/server", true},
		{"the device server knows no command set", "scsi/server", "internal/scsi/sbc", false},
		{"command sets do not know each other", "scsi/sbc", "internal/scsi/spc", false},
		{"the copy manager is no command set's", "scsi/spc", "internal/scsi/copymgr", false},
		{"a reservation knows no unit", "scsi/reservation", "internal/scsi/server", false},
		{"parameter data need no device server", "scsi/pages", "internal/scsi/server", false},
		{"a front end uses the whole of the SCSI layer", "iscsi", "internal/scsi/server", false},
		{"nobody else uses a part of the array", "sim", "internal/array/layout", false},
		{"a package without a rule", "util", "internal/block", false},
	} {
		if got := checkFile(below, row.pkg, []string{module + "/" + row.dep}); (got == "") != row.ok {
			t.Errorf("%s: %s imports %s: got %q", row.name, row.pkg, row.dep, got)
		}
	}
	for _, text := range []string{"a < b", "NONE < a; a < a"} {
		if _, msg := parseDirections(text); msg == "" {
			t.Errorf("directions %q were taken", text)
		}
	}
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nimport \"time\"\nfunc f() { go f(); _ = time.Now() }", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := impurities(f); len(got) != 2 {
		t.Errorf("impurities: got %q, want an import and a goroutine", got)
	}
	f, err = parser.ParseFile(token.NewFileSet(), "x.go", "package main\nimport s \"x/internal/sim\"\nfunc f(sim x) { s.New(nil); s.Compare(); sim.New() }", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := calls(f, uncalled["cmd/arraysim"]); len(got) != 1 {
		t.Errorf("calls: got %q, want one of sim.New", got)
	}
}
