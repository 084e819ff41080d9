// What users of package array may use of the objects that it hands out. Their types are those of
// its inner packages, whose exported fields and methods are for each other.

package lint

import (
	"fmt"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// facade lists these methods, by type. A field of such a type is nobody else's.
const facade = `
	pool.Pool: Fullness, ID, Name, SetMdiskLimits, SetMdiskOffline, SetWriteMode, Stats, UsedSeconds, Waits
	pool.Volume: CountEntries, Flow, ID, Import, Info, Name, Stats
	request.Volume: Submit
`

// objects are the types that have a facade.
var objects = []string{"pool.Set", "pool.Pool", "pool.Mdisk", "pool.Unit", "pool.Volume", "request.Volume", "request.Engine",
	"directory.Directory", "directory.Objects", "check.Checker", "provision.Manager"}

func TestObjectsAreChangedByTheArrayAlone(t *testing.T) {
	used, err := wholeSource().usesOfObjects("internal", "handlers", "cmd")
	if err != nil {
		t.Fatal(err)
	}
	if len(used) < 10 {
		t.Fatalf("found %d uses: the test does not find them", len(used))
	}
	for _, msg := range behindFacade(used, facade) {
		t.Error(msg)
	}
	// Each of them can fail.
	if got := behindFacade(map[string]string{"pool.Pool.Name": "a", "pool.Volume.Spec": "b", "request.Engine.Stop": "c"}, facade); len(got) != 2 {
		t.Errorf("refused are %q", got)
	}
	for _, what := range []string{"pool.Pool.Name", "request.Volume.Submit"} {
		if used[what] == "" {
			t.Errorf("nobody is found to use %s", what)
		}
	}
}

// behindFacade lists the uses that a facade does not have.
func behindFacade(used map[string]string, facade string) (out []string) {
	var allowed []string
	for _, line := range strings.Split(strings.TrimSpace(facade), "\n") {
		typ, list, _ := strings.Cut(strings.TrimSpace(line), ":")
		for _, m := range names(list) {
			allowed = append(allowed, typ+"."+m)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(used)) {
		if !slices.Contains(allowed, what) {
			out = append(out, used[what]+" uses "+what+", which is for the array's own packages")
		}
	}
	return out
}

// usesOfObjects returns which fields and methods of the objects the packages in some folders use
// that are outside of internal/array, each with a place that does.
func (s *source) usesOfObjects(dirs ...string) (map[string]string, error) {
	members := map[types.Object]string{}
	for _, o := range objects {
		pkg, name, _ := strings.Cut(o, ".")
		c, err := s.load("internal/array/" + pkg)
		if err != nil {
			return nil, err
		}
		typ, ok := c.types.Scope().Lookup(name).(*types.TypeName)
		if !ok {
			return nil, fmt.Errorf("there is no %s", o)
		}
		named := typ.Type().(*types.Named)
		for i := range named.NumMethods() {
			members[named.Method(i)] = o + "." + named.Method(i).Name()
		}
		for f := range named.Underlying().(*types.Struct).Fields() {
			members[f] = o + "." + f.Name()
		}
	}
	used := map[string]string{}
	for _, dir := range dirs {
		pkgs, err := s.packages(dir)
		if err != nil {
			return nil, err
		}
		for _, p := range pkgs {
			if p == "internal/array" || strings.HasPrefix(p, "internal/array/") {
				continue
			}
			c, err := s.load(p)
			if err != nil {
				return nil, err
			}
			for id, obj := range c.info.Uses {
				what := members[obj]
				at := s.fset.Position(id.Pos())
				place := fmt.Sprintf("%s:%d", strings.TrimPrefix(at.Filename, s.root+"/"), at.Line)
				if what != "" && (used[what] == "" || place < used[what]) {
					used[what] = place
				}
			}
		}
	}
	return used, nil
}
