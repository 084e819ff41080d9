// What makes the firmware's core hard to read, as numbers with bounds: structs of many fields,
// long functions, files and packages, and files that call each other in circles. Every package
// in the folders of coreRoots is measured, so one that is new or has moved is bound at once. The
// test prints what it measured; `go test -v -run TestShape ./internal/lint` shows it.

package lint

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// coreRoots are the folders whose packages are the core of the firmware, with all below them.
var coreRoots = []string{"internal/array", "internal/scsi"}

// maxFunction is the length in lines from which a function counts as long.
const maxFunction = 70

// shapeLimits bounds every package of the core. The first row is the goal, and the bound of every
// package without a row of its own. A row has what was measured last where that is above the goal,
// else the goal. Its numbers only go down; who brings one to the goal writes the goal, and a row of
// goals goes.
const shapeLimits = `
	package   fields  lines  long  longest  file  back
	goal          25   2500     0       70   450     2
	array         76  10700     3       82   465    60
	scsi          25   8200     0       70   450     2
`

// shape is what is measured of a package.
type shape struct {
	pkg      string
	structs  []sized // the one of most fields first
	lines    int     // of all files that are no tests
	comments int     // lines of them that are comments only
	long     int     // functions of more than maxFunction lines
	longAt   string
	longest  int // lines of the longest function
	fileAt   string
	file     int // lines of the longest file
	files    int
	edges    int      // files that use a function of another file, counted once for each pair
	back     []string // those of them that run back up, whatever the order of the files
}

// sized is a struct with the number of its fields.
type sized struct {
	name   string
	fields int
}

func (s *shape) String() string {
	share := 100 * float64(s.comments) / float64(max(s.lines, 1))
	return fmt.Sprintf("%-16s fields %v; %d lines, %.0f %% comments; %d functions over %d lines, the longest %d (%s); "+
		"%d files, the longest %d (%s); %d of %d references run back",
		s.pkg, s.structs[:min(4, len(s.structs))], s.lines, share, s.long, maxFunction, s.longest, s.longAt, s.files, s.file, s.fileAt, len(s.back), s.edges)
}

// numbers are the measured values in the order of the table's columns.
func (s *shape) numbers() []int {
	fields := 0
	if len(s.structs) > 0 {
		fields = s.structs[0].fields
	}
	return []int{fields, s.lines, s.long, s.longest, s.file, len(s.back)}
}

func TestShapeOfTheCore(t *testing.T) {
	columns, rows, err := parseLimits(shapeLimits)
	if err != nil {
		t.Fatal(err)
	}
	src := newSource(root)
	var pkgs []string
	for _, dir := range coreRoots {
		found, err := src.packages(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 0 {
			t.Errorf("no package in %s", dir)
		}
		pkgs = append(pkgs, found...)
	}
	for _, dir := range pkgs {
		s, err := src.measure(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(s)
		for _, b := range s.back {
			t.Log("    back:", b)
		}
		for _, msg := range s.exceeds(columns, rows) {
			t.Error(msg)
		}
		delete(rows, s.pkg)
	}
	delete(rows, "goal")
	for pkg := range rows {
		t.Errorf("the table has a row for %s, which is no package of the core", pkg)
	}
}

// exceeds lists which bounds the package is above, and which of its bounds are below the goal.
func (s *shape) exceeds(columns []string, rows map[string][]int) []string {
	goal, own := rows["goal"], rows[s.pkg]
	var out []string
	for i, n := range s.numbers() {
		bound := goal[i]
		if own != nil {
			bound = own[i]
		}
		if n > bound {
			out = append(out, fmt.Sprintf("%s: %s is %d, above %d (goal %d); %s", s.pkg, columns[i], n, bound, goal[i], s))
		}
		if bound < goal[i] {
			out = append(out, fmt.Sprintf("%s: the bound of %s is below the goal: write %d", s.pkg, columns[i], goal[i]))
		}
	}
	return out
}

// parseLimits reads a table like shapeLimits.
func parseLimits(text string) (columns []string, rows map[string][]int, err error) {
	rows = map[string][]int{}
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		f := strings.Fields(line)
		if columns == nil {
			columns = f[1:]
			continue
		}
		if len(f) != len(columns)+1 {
			return nil, nil, fmt.Errorf("%d numbers for %d columns: %s", len(f)-1, len(columns), line)
		}
		for _, v := range f[1:] {
			n, err := strconv.Atoi(v)
			if err != nil {
				return nil, nil, err
			}
			rows[f[0]] = append(rows[f[0]], n)
		}
	}
	if rows["goal"] == nil {
		return nil, nil, errors.New("no goal")
	}
	return columns, rows, nil
}

// source type-checks packages of the module from their source, as far as that needs no package
// of the standard library: what comes from there is unknown, which no reference inside a package
// depends on.
type source struct {
	root string
	fset *token.FileSet
	pkgs map[string]*checked // by folder from the root
}

type checked struct {
	files []*ast.File
	names []string // of the files
	types *types.Package
	info  *types.Info
}

func newSource(root string) *source {
	return &source{root: root, fset: token.NewFileSet(), pkgs: map[string]*checked{}}
}

// packages lists the folders with Go files in dir and below. Fakes and suites (NAMEtest) and
// test data are left out.
func (s *source) packages(dir string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(filepath.Join(s.root, dir), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || strings.HasSuffix(d.Name(), "test")) {
			return filepath.SkipDir
		}
		if d.IsDir() || !isSource(p) {
			return nil
		}
		rel, err := filepath.Rel(s.root, filepath.Dir(p))
		if rel = filepath.ToSlash(rel); !slices.Contains(out, rel) {
			out = append(out, rel)
		}
		return err
	})
	return out, err
}

func isSource(p string) bool {
	return strings.HasSuffix(p, ".go") && !strings.HasSuffix(p, "_test.go")
}

// Import is that of types.Importer.
func (s *source) Import(p string) (*types.Package, error) {
	if dir, ok := strings.CutPrefix(p, module+"/"); ok {
		c, err := s.load(dir)
		if err != nil {
			return nil, err
		}
		return c.types, nil
	}
	empty := types.NewPackage(p, path.Base(p))
	empty.MarkComplete()
	return empty, nil
}

func (s *source) load(dir string) (*checked, error) {
	if c := s.pkgs[dir]; c != nil {
		return c, nil
	}
	names, err := filepath.Glob(filepath.Join(s.root, dir, "*.go"))
	if err != nil {
		return nil, err
	}
	c := &checked{info: &types.Info{Uses: map[*ast.Ident]types.Object{}}}
	for _, name := range names {
		if !isSource(name) {
			continue
		}
		f, err := parser.ParseFile(s.fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		c.files, c.names = append(c.files, f), append(c.names, filepath.Base(name))
	}
	conf := types.Config{Importer: s, Error: func(error) {}} // the compiler reports errors
	c.types, _ = conf.Check(module+"/"+dir, s.fset, c.files, c.info)
	s.pkgs[dir] = c
	return c, nil
}

// measure returns the numbers of the package in a folder.
func (s *source) measure(dir string) (*shape, error) {
	c, err := s.load(dir)
	if err != nil {
		return nil, err
	}
	m := &shape{pkg: strings.TrimPrefix(dir, "internal/"), files: len(c.files)}
	for i, f := range c.files {
		file := s.fset.File(f.FileStart)
		n := file.LineCount()
		m.lines += n
		if n > m.file {
			m.file, m.fileAt = n, c.names[i]
		}
		for _, g := range f.Comments {
			m.comments += s.height(g)
		}
		s.measureDecls(m, f)
	}
	slices.SortStableFunc(m.structs, func(a, b sized) int { return b.fields - a.fields })
	m.edges, m.back = upward(c.names, s.references(c))
	return m, nil
}

// height is the number of lines of a node.
func (s *source) height(n ast.Node) int {
	return s.fset.Position(n.End()).Line - s.fset.Position(n.Pos()).Line + 1
}

func (s *source) measureDecls(m *shape, f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			h := s.height(n)
			if h > maxFunction {
				m.long++
			}
			if h > m.longest {
				m.longest, m.longAt = h, n.Name.Name
			}
		case *ast.TypeSpec:
			if st, ok := n.Type.(*ast.StructType); ok {
				m.structs = append(m.structs, sized{n.Name.Name, st.Fields.NumFields()})
			}
		}
		return true
	})
}

// references returns which file uses functions and methods of which other one, by index, with
// the name of one of them. Types, variables and constants are no step of a walk.
func (s *source) references(c *checked) map[[2]int]string {
	at := map[string]int{}
	for i, f := range c.files {
		at[s.fset.Position(f.Package).Filename] = i
	}
	refs := map[[2]int]string{}
	for id, obj := range c.info.Uses {
		fn, ok := obj.(*types.Func)
		if !ok || fn.Pkg() != c.types {
			continue
		}
		from, ok1 := at[s.fset.Position(id.Pos()).Filename]
		to, ok2 := at[s.fset.Position(fn.Pos()).Filename]
		pair := [2]int{from, to}
		// The smallest name, so that the answer does not hang on the order of the map.
		if name, have := refs[pair]; ok1 && ok2 && from != to && (!have || fn.Name() < name) {
			refs[pair] = fn.Name()
		}
	}
	return refs
}

// upward puts the files into an order in which as few references as it can find run from a later
// file to an earlier one, and lists these. It tries the order of the names, its reverse and a
// greedy one.
func upward(names []string, refs map[[2]int]string) (edges int, back []string) {
	byName := make([]int, len(names))
	for i := range byName {
		byName[i] = i
	}
	reverse := slices.Clone(byName)
	slices.Reverse(reverse)
	for i, start := range [][]int{greedy(len(names), refs), byName, reverse} {
		list := backward(names, refs, sift(start, refs))
		if i == 0 || len(list) < len(back) {
			back = list
		}
	}
	return len(refs), back
}

// backward lists the references from a later file of the order to an earlier one.
func backward(names []string, refs map[[2]int]string, order []int) []string {
	var back []string
	for i, a := range order {
		for _, b := range order[:i] {
			if fn, ok := refs[[2]int{a, b}]; ok {
				back = append(back, fmt.Sprintf("%s -> %s (%s)", names[a], names[b], fn))
			}
		}
	}
	return back
}

// sift moves one file after the other to where it does best, until none moves.
func sift(order []int, refs map[[2]int]string) []int {
	for again := true; again; {
		again = false
		for f := range len(order) {
			from := slices.Index(order, f)
			best, to, gain := 0, from, 0
			for i := from - 1; i >= 0; i-- { // up: f would stand before order[i]
				if gain += step(refs, order[i], f); gain > best {
					best, to = gain, i
				}
			}
			gain = 0
			for i := from + 1; i < len(order); i++ {
				if gain += step(refs, f, order[i]); gain > best {
					best, to = gain, i
				}
			}
			if to != from {
				order = slices.Insert(slices.Delete(order, from, from+1), to, f)
				again = true
			}
		}
	}
	return order
}

// greedy puts next, of the files that are left, the one that uses most and is used least.
func greedy(n int, refs map[[2]int]string) []int {
	var order []int
	for len(order) < n {
		best, most := -1, 0
		for f := range n {
			if slices.Contains(order, f) {
				continue
			}
			free := 0
			for g := range n {
				if g != f && !slices.Contains(order, g) {
					free += step(refs, g, f)
				}
			}
			if best < 0 || free > most {
				best, most = f, free
			}
		}
		order = append(order, best)
	}
	return order
}

// step is what it saves that b comes before a, and not a before b.
func step(refs map[[2]int]string, a, b int) int {
	gain := 0
	if _, ok := refs[[2]int{b, a}]; ok {
		gain++
	}
	if _, ok := refs[[2]int{a, b}]; ok {
		gain--
	}
	return gain
}

// TestShapeBites shows that the numbers are right, and that each bound can fail.
func TestShapeBites(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		p := filepath.Join(dir, "internal", "box", name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a.go", "// One comment,\n// two lines.\n\npackage box\n\ntype t struct {\n\ta, b int\n\tu\n}\n\nfunc (x *t) up() { x.down() }\n")
	write("b.go", "package box\n\nimport \"fmt\"\n\ntype u struct{}\n\nfunc (x *t) down() {\n\tfmt.Println()\n"+strings.Repeat("\n", maxFunction-2)+"\tx.up()\n}\n")
	write("b_test.go", "package box\n\nfunc (x *t) up2() { x.up() }\n")
	write("inner/c.go", "package inner\n\nfunc f() {}\n")
	write("boxtest/d.go", "package boxtest\n")
	src := newSource(dir)
	found, err := src.packages("internal")
	if want := []string{"internal/box", "internal/box/inner"}; err != nil || !slices.Equal(found, want) {
		t.Fatalf("packages %q, %v; want %q", found, err, want)
	}
	s, err := src.measure("internal/box")
	if err != nil {
		t.Fatal(err)
	}
	// The comment is 2 lines, a.go 11, b.go 8 and the function's rest; the two files use each other.
	if got, want := s.numbers(), []int{3, 11 + 8 + maxFunction, 1, maxFunction + 2, 8 + maxFunction, 1}; !slices.Equal(got, want) || s.comments != 2 || s.edges != 2 {
		t.Errorf("measured %v, want %v: %s", got, want, s)
	}
	columns, rows, err := parseLimits("package a b c d e f\ngoal 2 2 0 2 2 0")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.exceeds(columns, rows); len(got) != len(columns) {
		t.Errorf("of %d bounds %q are exceeded", len(columns), got)
	}
	for _, bad := range []string{"package a\nbox 1", "package a\ngoal 1 2", "package a\ngoal x"} {
		if _, _, err := parseLimits(bad); err == nil {
			t.Errorf("the table %q was taken", bad)
		}
	}
	// A circle of three files has one reference back, however the files are called.
	for _, names := range [][]string{{"a", "b", "c"}, {"c", "a", "b"}, {"b", "c", "a"}} {
		refs := map[[2]int]string{{0, 1}: "f", {1, 2}: "g", {2, 0}: "h"}
		if n, back := upward(names, refs); n != 3 || len(back) != 1 {
			t.Errorf("%q: %d references, back %q", names, n, back)
		}
	}
}
