// What makes the firmware's core hard to read, as numbers with bounds: structs of many fields,
// long functions, files and packages, and files that call each other in circles. Every package
// in the folders of coreRoots is measured, so one that is new or has moved is bound at once. The
// test prints what it measured; `go test -v -run TestShape ./internal/lint` shows it.

package lint

import (
	"errors"
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"os"
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
// goals goes. Why a row is above it:
//
//   - array/request: an op embeds its ticket, which others queue, and its work, which is one value so
//     that it is cleared as one. What only some kinds need lies there side by side.
//   - array/wcache: a Cache embeds its pageIndex, which has a file and methods of its own.
//   - scsi/server: a Unit embeds its taskSet, likewise.
const shapeLimits = `
	package        fields  lines  long  longest  file  back
	goal               25   2500     0       70   450     5
	array/request      35   2500     0       70   450     5
	array/wcache       28   2500     0       70   450     5
	scsi/server        28   2500     0       70   450     5
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
	src := wholeSource()
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
		s.measureDecls(m, c, f)
	}
	slices.SortStableFunc(m.structs, func(a, b sized) int { return b.fields - a.fields })
	m.edges, m.back = upward(c.names, s.references(c))
	return m, nil
}

// height is the number of lines of a node.
func (s *source) height(n ast.Node) int {
	return s.fset.Position(n.End()).Line - s.fset.Position(n.Pos()).Line + 1
}

func (s *source) measureDecls(m *shape, c *checked, f *ast.File) {
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
				m.structs = append(m.structs, sized{n.Name.Name, fieldsOf(c, st)})
			}
		}
		return true
	})
}

// fieldsOf returns how many fields a struct has, with those of the structs of this module that it
// embeds, and that these do: to embed a part hides it from nobody. One that is embedded by a
// pointer is another object.
func fieldsOf(c *checked, st *ast.StructType) (n int) {
	for _, f := range st.Fields.List {
		if len(f.Names) > 0 {
			n += len(f.Names)
			continue
		}
		n += embedded(c.info.TypeOf(f.Type))
	}
	return n
}

// embedded returns how many fields come with an embedded one of a type.
func embedded(t types.Type) (n int) {
	named, ok := t.(*types.Named)
	if !ok || named.Obj().Pkg() == nil || !strings.HasPrefix(named.Obj().Pkg().Path(), module+"/") {
		return 1
	}
	st, ok := named.Underlying().(*types.Struct)
	if !ok {
		return 1
	}
	for f := range st.Fields() {
		if f.Embedded() {
			n += embedded(f.Type())
		} else {
			n++
		}
	}
	return n
}

// TestWalksGoDownhill holds the walks that docs/architecture.md draws against the source: the
// files are there, and none uses a function of a file that stands above it, be it through an
// interface, but for the ways back that the document lists. Each of these is there, too.
func TestWalksGoDownhill(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	walks := drawnWalks(string(b))
	if len(walks) < 2 {
		t.Fatalf("%d walks are drawn: the test does not find them", len(walks))
	}
	src := wholeSource()
	allowed := waysBack(string(b))
	if len(allowed) < 2 {
		t.Fatalf("ways back of %d packages are listed: the test does not find them", len(allowed))
	}
	load := func(dir string) (*checked, map[[2]int]string) {
		c, err := src.load(dir)
		if err != nil {
			t.Fatal(err)
		}
		refs, err := src.allReferences(c)
		if err != nil {
			t.Fatal(err)
		}
		return c, refs
	}
	for dir, ways := range allowed {
		c, refs := load(dir)
		for _, way := range ways {
			from, to, _ := strings.Cut(way, " -> ")
			if refs[[2]int{slices.Index(c.names, from), slices.Index(c.names, to)}] == "" {
				t.Errorf("in %s: the way back %s is listed and not there", dir, way)
			}
		}
	}
	for title, walk := range walks {
		for dir, files := range walk {
			c, refs := load(dir)
			for _, msg := range climbs(c.names, files, refs, allowed[dir]) {
				t.Errorf("the walk of %s, in %s: %s", title, dir, msg)
			}
		}
	}
}

// drawnWalks returns, for each heading "The walk of ...", the files that its drawing names at the
// beginning of a line, in their order, by the folder that stands on a line of its own above them.
func drawnWalks(text string) map[string]map[string][]string {
	walks := map[string]map[string][]string{}
	for _, section := range strings.Split(text, "\n## ") {
		title, body, _ := strings.Cut(section, "\n")
		title, ok := strings.CutPrefix(title, "The walk of ")
		if !ok {
			continue
		}
		walk := map[string][]string{}
		dir := ""
		for _, line := range strings.Split(body, "\n") {
			drawn, ok := strings.CutPrefix(line, "    ")
			if !ok {
				continue
			}
			if strings.HasPrefix(drawn, "internal/") {
				dir = strings.TrimSpace(drawn)
				continue
			}
			for _, f := range strings.Fields(drawn) { // one file, or several with commas
				name := strings.TrimSuffix(f, ",")
				if !strings.HasSuffix(name, ".go") {
					break
				}
				walk[dir] = append(walk[dir], name)
				if name == f {
					break
				}
			}
		}
		walks[title] = walk
	}
	return walks
}

// waysBack returns what the section "The ways back up" lists, "a.go -> b.go", by the folder that
// stands on a line of its own above.
func waysBack(text string) map[string][]string {
	ways := map[string][]string{}
	_, body, _ := strings.Cut(text, "\n## The ways back up\n")
	body, _, _ = strings.Cut(body, "\n## ")
	dir := ""
	for _, line := range strings.Split(body, "\n") {
		f := strings.Fields(line)
		switch {
		case !strings.HasPrefix(line, "    ") || len(f) == 0:
		case strings.HasPrefix(f[0], "internal/"):
			dir = f[0]
		case len(f) > 2 && f[1] == "->":
			ways[dir] = append(ways[dir], strings.Join(f[:3], " "))
		}
	}
	return ways
}

// allReferences returns those of references and of returns.
func (s *source) allReferences(c *checked) (map[[2]int]string, error) {
	refs, err := s.returns(c)
	maps.Copy(refs, s.references(c))
	return refs, err
}

// climbs lists what is wrong with a walk through files of a package; allowed are ways back.
func climbs(names, walk []string, refs map[[2]int]string, allowed []string) []string {
	var out []string
	for i, f := range walk {
		from := slices.Index(names, f)
		if from < 0 {
			out = append(out, f+" does not exist")
			continue
		}
		for _, above := range walk[:i] {
			way := f + " -> " + above
			if fn, ok := refs[[2]int{from, slices.Index(names, above)}]; ok && !slices.Contains(allowed, way) {
				out = append(out, way+" ("+fn+") climbs")
			}
		}
	}
	return out
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
	write("a.go", "// One comment,\n// two lines.\n\npackage box\n\ntype t struct {\n\ta, b int\n\tu\n\t*v\n}\n\ntype v struct{ e, f, g int }\n\nfunc (x *t) up() { x.down() }\n")
	write("b.go", "package box\n\nimport \"fmt\"\n\ntype u struct{ c, d int }\n\nfunc (x *t) down() {\n\tfmt.Println()\n"+strings.Repeat("\n", maxFunction-2)+"\tx.up()\n}\n")
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
	// The struct has two fields, two that it embeds and a pointer; the comment is 2 lines, a.go 14, b.go
	// 8 and the function's rest; the two files use each other.
	if got, want := s.numbers(), []int{5, 14 + 8 + maxFunction, 1, maxFunction + 2, 8 + maxFunction, 1}; !slices.Equal(got, want) || s.comments != 2 || s.edges != 2 {
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
	walks := drawnWalks("# A\n\n## The walk of X\n\n    internal/box\n      a.go, b.go\n       |   (c.go)\n      c.go  says b.go\n\n## Other\n\n    d.go\n")
	want := map[string]map[string][]string{"X": {"internal/box": {"a.go", "b.go", "c.go"}}}
	if fmt.Sprint(walks) != fmt.Sprint(want) {
		t.Errorf("drawn are %v, want %v", walks, want)
	}
	refs := map[[2]int]string{{0, 1}: "f", {1, 0}: "g"}
	if got := climbs([]string{"a.go", "b.go"}, []string{"a.go", "b.go", "gone.go"}, refs, nil); len(got) != 2 {
		t.Errorf("climbs: %q", got)
	}
	ways := waysBack("# A\n\n## The ways back up\n\nText.\n\n    internal/box\n      b.go -> a.go  why\n\n## B\n\n    internal/no\n      c.go -> d.go\n")
	if got := fmt.Sprint(ways); got != "map[internal/box:[b.go -> a.go]]" {
		t.Errorf("listed are %s", got)
	}
	if got := climbs([]string{"a.go", "b.go"}, []string{"a.go", "b.go"}, refs, ways["internal/box"]); len(got) != 0 {
		t.Errorf("a way that is listed climbs: %q", got)
	}
}
