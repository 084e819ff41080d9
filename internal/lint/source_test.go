// Which file of a package uses functions of which other one, found by the type checker, and the
// order of the files in which the fewest of these references run back up.

package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

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

// wholeSource has the packages of this module: each is checked once for all tests, which only read them.
var wholeSource = sync.OnceValue(func() *source { return newSource(root) })

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
	c := &checked{info: &types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}}
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

// returns returns which file comes back to which other one through an interface of the module, with
// the name of the method: it calls that itself, or a function of another package that does. A
// function that was handed over as a value is not seen.
func (s *source) returns(c *checked) (map[[2]int]string, error) {
	refs := map[[2]int]string{}
	for id, obj := range c.info.Uses {
		fn, ok := obj.(*types.Func)
		if !ok || fn.Pkg() == c.types && !isInterfaceMethod(fn) {
			continue
		}
		called, err := s.callsBack(fn, map[*types.Func]bool{})
		if err != nil {
			return nil, err
		}
		for _, m := range called {
			for _, to := range implementers(c.types, m) {
				pair := [2]int{s.fileOf(c, id.Pos()), s.fileOf(c, to.Pos())}
				if name, have := refs[pair]; pair[0] != pair[1] && (!have || m.Name() < name) {
					refs[pair] = m.Name()
				}
			}
		}
	}
	return refs, nil
}

// fileOf returns the index of the file of a package that a position is in, -1 if in none.
func (s *source) fileOf(c *checked, at token.Pos) int {
	return slices.IndexFunc(c.files, func(f *ast.File) bool { return f.FileStart <= at && at < f.FileEnd })
}

func isInterfaceMethod(fn *types.Func) bool {
	r := fn.Signature().Recv()
	return r != nil && types.IsInterface(r.Type())
}

// callsBack returns the methods of interfaces of the module that a function is, or calls, itself or
// through functions of its own package.
func (s *source) callsBack(fn *types.Func, seen map[*types.Func]bool) (out []*types.Func, err error) {
	dir, ours := "", false
	if fn.Pkg() != nil {
		dir, ours = strings.CutPrefix(fn.Pkg().Path(), module+"/")
	}
	if !ours || seen[fn] {
		return nil, nil
	}
	seen[fn] = true
	if isInterfaceMethod(fn) {
		return []*types.Func{fn}, nil
	}
	c, err := s.load(dir)
	if err != nil {
		return nil, err
	}
	i := s.fileOf(c, fn.Pos())
	if i < 0 {
		return nil, nil
	}
	for _, d := range c.files[i].Decls {
		if d.Pos() > fn.Pos() || fn.Pos() >= d.End() {
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool {
			id, _ := n.(*ast.Ident)
			if next, ok := c.info.Uses[id].(*types.Func); ok && err == nil && (next.Pkg() == c.types || isInterfaceMethod(next)) {
				var more []*types.Func
				more, err = s.callsBack(next, seen)
				out = append(out, more...)
			}
			return true
		})
	}
	return out, err
}

// implementers returns what a method of an interface is in the types of a package.
func implementers(pkg *types.Package, m *types.Func) (out []*types.Func) {
	iface := m.Signature().Recv().Type().Underlying().(*types.Interface)
	for _, name := range pkg.Scope().Names() {
		typ, ok := pkg.Scope().Lookup(name).(*types.TypeName)
		if !ok || types.IsInterface(typ.Type()) || !types.Implements(types.NewPointer(typ.Type()), iface) {
			continue
		}
		if fn, _, _ := types.LookupFieldOrMethod(typ.Type(), true, pkg, m.Name()); fn != nil && fn.Pkg() == pkg {
			if fn, ok := fn.(*types.Func); ok {
				out = append(out, fn)
			}
		}
	}
	return out
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
