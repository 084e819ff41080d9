package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"strings"

	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/gcexportdata"
	"golang.org/x/tools/go/packages"
)

// variant checks packages as a build with tags makes them: their types, and go vet's analyzers. This module's packages
// below them are read from their source, since compiling them for a tag would take ten times as long; all others come
// compiled. What these may print by, facts of theirs, is not known here; the pass over all packages knows it.
func variant(tags string, patterns []string) error {
	v := &loading{fset: token.NewFileSet(), done: map[string]*packages.Package{}, types: map[string]*types.Package{}}
	config := &packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedDeps | packages.NeedModule | packages.NeedTypesSizes,
		Tests: true, BuildFlags: []string{"-tags", tags}, Fset: v.fset,
	}
	roots, err := packages.Load(config, patterns...)
	if err != nil {
		return err
	}
	roots = dropMains(roots)
	var others []string
	packages.Visit(roots, nil, func(p *packages.Package) {
		if !ours(p) {
			others = append(others, p.PkgPath)
		}
	})
	compiled := &packages.Config{
		Mode: packages.NeedName | packages.NeedExportFile, BuildFlags: []string{"-tags", tags},
	}
	exported, err := packages.Load(compiled, others...)
	if err != nil {
		return err
	}
	v.exports = map[string]string{}
	for _, p := range exported {
		v.exports[p.PkgPath] = p.ExportFile
	}
	for _, p := range roots {
		if err := v.load(p); err != nil {
			return err
		}
	}
	graph, err := checker.Analyze(vet, roots, nil)
	if err != nil {
		return err
	}
	said := false
	for _, a := range graph.Roots {
		if a.Err != nil {
			return a.Err
		}
		for _, d := range a.Diagnostics {
			said = true
			fmt.Printf("%s: %s (%s, tags %s)\n", v.fset.Position(d.Pos), d.Message, a.Analyzer.Name, tags)
		}
	}
	if said {
		return errors.New("there are findings")
	}
	return nil
}

// loading is what is known while the types of packages are found, those below first.
type loading struct {
	fset    *token.FileSet
	exports map[string]string
	done    map[string]*packages.Package // by id
	types   map[string]*types.Package    // of others, by path
}

// ours tells whether a package is of this module.
func ours(p *packages.Package) bool { return p.Module != nil && p.Module.Main }

// dropMains leaves out the programs that Go writes around tests.
func dropMains(roots []*packages.Package) (kept []*packages.Package) {
	for _, p := range roots {
		if !strings.HasSuffix(p.ID, ".test") {
			kept = append(kept, p)
		}
	}
	return kept
}

// load finds the types of a package of ours, and of those of ours that it imports.
func (v *loading) load(p *packages.Package) error {
	if v.done[p.ID] != nil {
		return nil
	}
	v.done[p.ID] = p
	for _, e := range p.Errors {
		return e
	}
	for path, imported := range p.Imports {
		if !ours(imported) {
			continue
		}
		if err := v.load(imported); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	p.Fset, p.Syntax = v.fset, nil
	for _, name := range p.CompiledGoFiles {
		f, err := parser.ParseFile(v.fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		p.Syntax = append(p.Syntax, f)
	}
	p.TypesInfo = &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Instances: map[*ast.Ident]types.Instance{},
		Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Implicits: map[ast.Node]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
		Scopes: map[ast.Node]*types.Scope{}, FileVersions: map[*ast.File]string{},
	}
	var all []error
	config := types.Config{
		Importer: importing{v, p}, Sizes: p.TypesSizes, GoVersion: "go" + p.Module.GoVersion,
		Error: func(err error) { all = append(all, err) },
	}
	p.Types, _ = config.Check(p.PkgPath, v.fset, p.Syntax, p.TypesInfo)
	for path, imported := range p.Imports {
		if !ours(imported) {
			delete(p.Imports, path) // it has no syntax to analyze
		}
	}
	return errors.Join(all...)
}

// importing finds what a package imports.
type importing struct {
	*loading
	p *packages.Package
}

// Import returns a package by the path that a file imports it by.
func (i importing) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	imported := i.p.Imports[path]
	if imported == nil {
		return nil, fmt.Errorf("%s imports %s, which is not there", i.p.ID, path)
	}
	if ours(imported) {
		return imported.Types, nil
	}
	path = imported.PkgPath
	if t := i.types[path]; t != nil && t.Complete() {
		return t, nil
	}
	f, err := os.Open(i.exports[path])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	r, err := gcexportdata.NewReader(f)
	if err != nil {
		return nil, err
	}
	return gcexportdata.Read(r, i.fset, i.types, path)
}
