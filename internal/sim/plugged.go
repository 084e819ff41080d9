package sim

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/hostcache"
	"github.com/arraysim/arraysim/lab/plug"
)

// Policies of somebody else's, see package plug. A scenario names them where it names ours; whoever
// runs it brings them along in Scenario.Plugged. What they answer is checked here, or by the index
// for evictions: a wrong answer ends the run with an error.

// Module is a file that is a policy, or several of different kinds: each method makes one of its kind.
type Module interface {
	Eviction(c plug.Cache) (plug.Eviction, error)
	Admission(c plug.Cache) (plug.Admission, error)
	Throttle(c plug.Cache) (plug.Throttle, error)
	Destage(c plug.Partition) (plug.Destage, error)
	Placement(c plug.Array) (plug.Placement, error)
}

// PolicyRef names a policy, or a file that is one.
type PolicyRef struct {
	Name string
	// Wasm is the path of a WebAssembly module, which Scenario.LoadWasm loads.
	Wasm string
}

// WasmPrefix makes a name of a policy the path of a WebAssembly module.
const WasmPrefix = "wasm:"

// UnmarshalYAML reads a name, or the path of a module: wasm:FILE, or a map with the key wasm.
func (p *PolicyRef) UnmarshalYAML(read func(any) error) error {
	if read(&p.Name) == nil {
		if file, ok := strings.CutPrefix(p.Name, WasmPrefix); ok {
			p.Name, p.Wasm = "", file
		}
		return nil
	}
	var m map[string]string
	if err := read(&m); err != nil || len(m) != 1 || m["wasm"] == "" {
		return errors.New("a policy is a name, or wasm: with the path of a file")
	}
	p.Wasm = m["wasm"]
	return nil
}

// String is the policy's name in messages.
func (p PolicyRef) String() string {
	if p.Wasm != "" {
		return p.Wasm
	}
	return p.Name
}

// Any tells whether it names one.
func (p PolicyRef) Any() bool { return p != PolicyRef{} }

// checkNames returns an error for a plugged policy that could not be chosen, since its name means one of ours, or a file.
func checkNames(p *plug.Policies) error {
	for _, name := range sortedKeys(p.Eviction) {
		if hostcache.UnknownPolicy(name) == nil {
			return fmt.Errorf("eviction policy %s: arraysim has a built-in one of that name; choose another name", name)
		}
	}
	for _, k := range []struct {
		kind  string
		names []string
	}{{"eviction", sortedKeys(p.Eviction)}, {"admission", sortedKeys(p.Admission)}, {"throttle", sortedKeys(p.Throttle)},
		{"destage", sortedKeys(p.Destage)}, {"placement", sortedKeys(p.Placement)}} {
		for _, name := range k.names {
			if strings.HasPrefix(name, WasmPrefix) {
				return fmt.Errorf("%s policy %s: a name that begins with %s is the path of a module; choose another name", k.kind, name, WasmPrefix)
			}
		}
	}
	return nil
}

// maker returns what makes the policy of a reference: a module, by its method of this kind, or what is plugged in. ours
// are the names that there are besides.
func maker[C, P any](r *Run, kind string, ref PolicyRef, plugged map[string]func(C) (P, error), of func(Module, C) (P, error), ours ...string) (func(C) (P, error), error) {
	if ref.Wasm == "" {
		return constructor(kind, ref.Name, plugged, ours...)
	}
	if r.s.LoadWasm == nil {
		return nil, fmt.Errorf("%s policy %s: WebAssembly cannot be loaded here", kind, ref)
	}
	m, err := r.s.LoadWasm(ref.Wasm)
	if err != nil {
		return nil, fmt.Errorf("%s policy: %w", kind, err)
	}
	return func(c C) (P, error) { return of(m, c) }, nil
}

// constructor returns what makes the policy of a name.
func constructor[F any](kind, name string, plugged map[string]F, ours ...string) (F, error) {
	f, ok := plugged[name]
	if ok && !reflect.ValueOf(f).IsNil() {
		return f, nil
	}
	if ok {
		return f, fmt.Errorf("%s policy %s has no constructor: it is nil", kind, name)
	}
	known := append(slices.Clone(ours), sortedKeys(plugged)...)
	if len(known) == 0 {
		return f, fmt.Errorf("no %s policy is named %q: none was given to the run", kind, name)
	}
	return f, fmt.Errorf("no %s policy is named %q; choose from %s", kind, name, strings.Join(known, ", "))
}

// random is the source of a policy at this place of the scenario.
func (r *Run) random(kind, place string) plug.Random {
	rng := newRand(r.s.Seed, kind+" policy of "+place)
	return &rng
}

// madePolicy is a policy that a constructor has made, to be asked whether it failed, and closed at the end.
type madePolicy struct {
	name string
	by   any
}

// keep takes what a constructor of somebody else's has made, or why it has not.
func keep[P any](r *Run, name string, p P, err error) (P, error) {
	if err == nil && any(p) == nil {
		err = errors.New("its constructor returned neither a policy nor an error")
	}
	if err != nil {
		if text := err.Error(); strings.Contains(text, "\n") {
			err = errors.New(strings.ReplaceAll(text, "\n", "; "))
		}
		return p, fmt.Errorf("%s: %w", name, err)
	}
	r.policies = append(r.policies, madePolicy{name, p})
	return p, nil
}

// newPolicy has the policy of a reference made.
func newPolicy[C, P any](r *Run, kind string, ref PolicyRef, plugged map[string]func(C) (P, error), of func(Module, C) (P, error), c C) (p P, err error) {
	mk, err := maker(r, kind, ref, plugged, of)
	if err != nil {
		return p, err
	}
	p, err = mk(c)
	return keep(r, kind+" policy "+ref.String(), p, err)
}

// checkPolicies ends the run if a policy says that it has failed.
func (r *Run) checkPolicies() {
	for _, m := range r.policies {
		if f, ok := m.by.(plug.Failing); ok && r.problem == nil {
			if err := f.Err(); err != nil {
				r.fail(fmt.Errorf("%s: %w", m.name, err))
			}
		}
	}
}

// Close lets go of what plugged policies hold, as Finish does. It is for a run that does not get there.
func (r *Run) Close() {
	made := r.policies
	r.policies = nil
	for _, m := range made {
		if c, ok := m.by.(io.Closer); ok {
			if err := c.Close(); err != nil {
				r.fail(fmt.Errorf("%s: %w", m.name, err))
			}
		}
	}
}

// fail ends the run because a policy or a job did what it may not.
func (r *Run) fail(err error) {
	if r.problem != nil {
		return
	}
	r.problem = err
	if r.end < 0 {
		r.end = r.now()
	}
}

// cachePolicies are what somebody plugged into a host's cache.
type cachePolicies struct {
	eviction  func(capacity int64) plug.Eviction
	admission plug.Admission
	throttle  plug.Throttle
}

// plug makes the policies of a cache.
func (k *cached) plug(r *Run) error {
	s := k.spec
	place := k.d.h.name + "/" + k.name
	c := plug.Cache{Name: k.name, Blocks: int(s.Size / s.Block), BlockBytes: int(s.Block)}
	if s.Admission.Any() {
		c.Random = r.random("admission", place)
		a, err := newPolicy(r, "admission", s.Admission, r.s.Plugged.Admission, Module.Admission, c)
		if err != nil {
			return err
		}
		k.plugged.admission = &checkedAdmission{a, r}
	}
	if s.Throttle.Any() {
		c.Random = r.random("throttle", place)
		t, err := newPolicy(r, "throttle", s.Throttle, r.s.Plugged.Throttle, Module.Throttle, c)
		if err != nil {
			return err
		}
		k.plugged.throttle = &checkedThrottle{t, r, s.Throttle.String()}
	}
	return k.plugEviction(r, place, c)
}

// plugEviction makes the constructor of the eviction policy. The first policy is made at once, so that
// the run does not begin without it.
func (k *cached) plugEviction(r *Run, place string, c plug.Cache) error {
	s := k.spec
	if s.Eviction.Wasm == "" && (s.Eviction.Name == "" || hostcache.UnknownPolicy(s.Eviction.Name) == nil) {
		return nil
	}
	mk, err := maker(r, "eviction", s.Eviction, r.s.Plugged.Eviction, Module.Eviction, hostcache.Policies()...)
	if err != nil {
		return err
	}
	k.plugged.eviction = func(capacity int64) plug.Eviction {
		c.Blocks, c.Random = int(capacity), r.random("eviction", place)
		e, err := mk(c)
		if e, err = keep(r, "eviction policy "+s.Eviction.String(), e, err); err != nil {
			r.fail(err)
			return noEviction{}
		}
		return e
	}
	return nil
}

// noEviction stands for a policy that could not be made, until the run has ended.
type noEviction struct{}

func (noEviction) Insert(int, uint64)        {}
func (noEviction) Hit(int)                   {}
func (noEviction) Victim(func(int) bool) int { return -1 }
func (noEviction) Remove(int)                {}

// checkPolicy ends the run if the cache's eviction policy has failed.
func (k *cached) checkPolicy(r *Run) {
	if k.plugged.eviction == nil || r.problem != nil {
		return
	}
	if err := k.disk.PolicyErr(); err != nil {
		r.fail(fmt.Errorf("host %s, cache %s: %w", k.d.h.name, k.name, err))
	}
}

// checkedAdmission is an admission that nobody asks once the run has failed.
type checkedAdmission struct {
	plug.Admission
	r *Run
}

func (a *checkedAdmission) Admit(block uint64, write bool) bool {
	return a.r.problem != nil || a.Admission.Admit(block, write)
}

// checkedThrottle is a throttle whose answers are checked.
type checkedThrottle struct {
	plug.Throttle
	r    *Run
	name string
}

func (t *checkedThrottle) Delay(a plug.Area) int64 {
	if t.r.problem != nil {
		return 0
	}
	d := t.Throttle.Delay(a)
	if d < 0 {
		t.r.fail(fmt.Errorf("throttle policy %s delayed a write for %d ns; a delay cannot be negative", t.name, d))
		return 0
	}
	return d
}
