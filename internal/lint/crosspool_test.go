// What belongs to one pool is used by that pool, and what crosses pools goes through messages:
// package crosspool, and those that the table of the decision document lists beside it.

package lint

import (
	"fmt"
	"go/ast"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sharedByPools is what pools share, as types, or as one method or field of one. Those who work for
// pools say to it what a Link has messages for.
const sharedByPools = `
	admission.Gate, nvlog.Log, nvlog.Flusher, wcache.Pot, metadata.Ledger, checkpoint.Checkpointer, directory.Directory,
	nvlog.memory.Commit, wcache.Cache.TakeFree, wcache.Cache.Free, wcache.Cache.Room, wcache.Cache.Reserve,
	wcache.Cache.SetCaps, wcache.Cache.Policy
`

// otherPools is what leads from one pool to others. What belongs to one may not use it; the set, and
// the engine when it tells something to all pools, may.
const otherPools = `pool.Set.pools, pool.Set.Vols, pool.Set.Pools, pool.Set.ByID, pool.Set.Pool, pool.Set.Volumes,
	pool.Set.Volume, pool.Set.VolumeByID, pool.Set.mdisk`

// ofOnePool are the types that work within one pool, by package.
var ofOnePool = map[string][]string{"pool": {"Pool", "Mdisk", "Unit", "Volume"}, "request": {"Volume", "op", "reading", "ref"}}

// sourcePool is the one field that is another pool, and the file where it may be used.
const sourcePool, sourceFile = "request.ref.pool", "source.go"

// use is one use of a member.
type use struct {
	what     string // package.Type.member
	pkg      string
	receiver string // of the method that uses it, "" for a function
	file     string
}

func TestPoolsMeetThroughMessages(t *testing.T) {
	src := wholeSource()
	var uses []use
	for _, p := range []string{"pool", "request"} {
		found, err := src.usesIn(p, slices.Concat(names(sharedByPools), names(otherPools), []string{sourcePool})...)
		if err != nil {
			t.Fatal(err)
		}
		uses = append(uses, found...)
	}
	for _, msg := range aroundMessages(uses) {
		t.Error(msg)
	}
	// What it looks for is found where it may be.
	for _, want := range []string{"pool.Set.Vols", "pool.Set.Pools", sourcePool} {
		if !slices.ContainsFunc(uses, func(u use) bool { return u.what == want }) {
			t.Errorf("nobody is found to use %s", want)
		}
	}
	// Each rule can fail.
	bad := []use{{"nvlog.Log.Claim", "request", "Engine", "edit.go"}, {"wcache.Cache.TakeFree", "request", "op", "commit.go"},
		{"pool.Set.Vols", "pool", "Pool", "pool.go"}, {"pool.Set.Pools", "request", "op", "write.go"}, {sourcePool, "request", "op", "copy.go"}}
	good := []use{{"pool.Set.Vols", "pool", "Set", "set.go"}, {"pool.Set.Pools", "request", "Engine", "given.go"}, {sourcePool, "request", "ref", sourceFile}}
	if got := aroundMessages(append(good, bad...)); len(got) != len(bad) {
		t.Errorf("of %d bad uses are refused %q", len(bad), got)
	}
}

// aroundMessages lists the uses that go around the messages.
func aroundMessages(uses []use) (out []string) {
	other := names(otherPools)
	for _, u := range uses {
		where := fmt.Sprintf("%s/%s", u.pkg, u.file)
		switch {
		case u.what == sourcePool:
			if u.file != sourceFile {
				out = append(out, where+" uses the pool of a reference: ask the reference, in "+sourceFile)
			}
		case slices.Contains(other, u.what):
			if slices.Contains(ofOnePool[u.pkg], u.receiver) {
				out = append(out, fmt.Sprintf("%s: a method of %s uses %s, which leads to other pools", where, u.receiver, u.what))
			}
		default:
			out = append(out, fmt.Sprintf("%s uses %s, which pools share: say it through crosspool.Link", where, u.what))
		}
	}
	return out
}

// usesIn returns the uses, in a package of the array, of members of others: each is package.Type, for
// all that it has, or package.Type.member.
func (s *source) usesIn(pkg string, of ...string) (out []use, err error) {
	wanted := map[types.Object]string{}
	for _, o := range of {
		found, err := s.members(o)
		if err != nil {
			return nil, err
		}
		for obj, name := range found {
			wanted[obj] = name
		}
	}
	c, err := s.load("internal/array/" + pkg)
	if err != nil {
		return nil, err
	}
	for i, f := range c.files {
		for _, d := range f.Decls {
			ast.Inspect(d, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && wanted[c.info.Uses[id]] != "" {
					out = append(out, use{wanted[c.info.Uses[id]], pkg, receiverOf(d), c.names[i]})
				}
				return true
			})
		}
	}
	return out, nil
}

// receiverOf returns the name of the type that a declaration is a method of, "" if of none.
func receiverOf(d ast.Decl) string {
	fn, ok := d.(*ast.FuncDecl)
	if !ok || fn.Recv == nil {
		return ""
	}
	t := fn.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	id, _ := t.(*ast.Ident)
	return id.Name
}

// members returns the fields and methods of package.Type, or the one of package.Type.member.
func (s *source) members(of string) (map[types.Object]string, error) {
	part := strings.Split(of, ".")
	c, err := s.load("internal/array/" + part[0])
	if err != nil {
		return nil, err
	}
	typ, ok := c.types.Scope().Lookup(part[1]).(*types.TypeName)
	if !ok {
		return nil, fmt.Errorf("there is no %s", of)
	}
	found := map[types.Object]string{}
	named := typ.Type().(*types.Named)
	add := func(o types.Object) {
		if name := part[0] + "." + part[1] + "." + o.Name(); len(part) == 2 || name == of {
			found[o] = name
		}
	}
	for m := range named.Methods() {
		add(m)
	}
	if st, ok := named.Underlying().(*types.Struct); ok {
		for f := range st.Fields() {
			add(f)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("there is no %s", of)
	}
	return found, nil
}

var messageName = regexp.MustCompile("`([a-z]+\\.[A-Za-z]+\\.[A-Za-z]+)`")

// TestTableOfMessages holds the table of the decision document against the source: each message that
// it lists is there, and each method of a Link is a message that it lists.
func TestTableOfMessages(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs", "decisions", "20261122-a-core-with-seams.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(b), "| message | from, to | says | answered | the call today |")
	table, _, _ = strings.Cut(table, "\n\n")
	src := wholeSource()
	listed := map[string]bool{}
	rows := strings.Split(strings.TrimSpace(table), "\n")
	for _, row := range rows[1:] {
		calls := messageName.FindAllStringSubmatch(row, -1)
		if len(calls) == 0 || strings.Count(row, "|") != 6 {
			t.Errorf("the row names no call, or has not five columns: %s", row)
		}
		for _, m := range calls {
			listed[m[1]] = true
			if _, err := src.members(m[1]); err != nil {
				t.Error(err)
			}
		}
	}
	if len(rows) < 10 {
		t.Fatalf("%d rows: the table is not found", len(rows))
	}
	link, err := src.members("crosspool.Link")
	if err != nil {
		t.Fatal(err)
	}
	for obj, name := range link {
		if _, ok := obj.(*types.Func); ok && !listed[name] {
			t.Errorf("%s is no message of the table", name)
		}
	}
	if _, err := src.members("crosspool.Link.None"); err == nil {
		t.Error("a message that is not there was taken")
	}
}
