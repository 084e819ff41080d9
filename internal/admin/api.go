package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/arraysim/arraysim/internal/array"
)

// The interface's version is in its path. What is there changes only by addition;
// anything else gets another version beside it.
const (
	apiVersion = "1.0.0"
	apiPath    = "/api/v1"
)

// maxBody bounds what a request may send.
const maxBody = 1 << 20

// refusal is an error of the interface with its HTTP status.
type refusal struct {
	err    error
	status int
	force  bool
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// conflict refuses what is against the present state.
func conflict(format string, args ...any) error {
	return &refusal{err: fmt.Errorf(format, args...), status: http.StatusConflict}
}

// needForce refuses what force would allow.
func needForce(format string, args ...any) error {
	return &refusal{err: fmt.Errorf(format, args...), status: http.StatusConflict, force: true}
}

// Problem is the body of an answer that is an error: problem details of RFC 9457.
type Problem struct {
	Title  string `json:"title" doc:"What the status means."`
	Status int    `json:"status" doc:"The HTTP status."`
	Detail string `json:"detail" doc:"What is wrong and how to fix it, in one line."`
	Force  bool   `json:"force,omitempty" doc:"The request would succeed with force."`
}

func (p *Problem) Error() string { return p.Detail }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (p *Problem) ContentType(string) string { return problemType }

const problemType = "application/problem+json"

// problem makes the answer of an error.
func problem(err error) *Problem {
	status, force := http.StatusBadRequest, false
	var no *refusal
	switch {
	case errors.As(err, &no):
		status, force = no.status, no.force
	case errors.Is(err, array.ErrNotFound):
		status = http.StatusNotFound
	case errors.Is(err, array.ErrExists), errors.Is(err, array.ErrInUse):
		status = http.StatusConflict
	}
	return &Problem{Title: http.StatusText(status), Status: status, Detail: strings.ReplaceAll(err.Error(), "\n", "; "), Force: force}
}

// writeProblem answers with an error outside of huma's operations.
func writeProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(status)
	// An error here means that the client has gone.
	_ = json.NewEncoder(w).Encode(&Problem{Title: http.StatusText(status), Status: status, Detail: detail})
}

// useProblems makes huma say what it finds wrong with a request by a Problem. That is a
// variable of its package.
var useProblems = sync.OnceFunc(func() {
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		for i, err := range errs {
			text := err.Error()
			var d *huma.ErrorDetail
			// The value is left out: it may be long.
			if errors.As(err, &d) {
				text = d.Message
				if d.Location != "" {
					text += " (" + d.Location + ")"
				}
			}
			sep := ", "
			if i == 0 {
				sep = ": "
			}
			msg += sep + text
		}
		if status == http.StatusUnprocessableEntity {
			status = http.StatusBadRequest
		}
		return &Problem{Title: http.StatusText(status), Status: status, Detail: msg}
	}
})

// answer is the output of an operation.
type answer[T any] struct{ Body T }

// operation describes an operation. What changes objects, or makes hosts wait, asks
// for the token where there is one.
func operation(method, path, id, summary string) huma.Operation {
	op := huma.Operation{Method: method, Path: apiPath + path, OperationID: id, Summary: summary, MaxBodyBytes: maxBody}
	op.Tags = []string{strings.Split(strings.TrimPrefix(path, "/"), "/")[0]}
	if method != http.MethodGet {
		op.Security = []map[string][]string{{"token": {}}}
	}
	return op
}

// handle registers an operation that reads.
func handle[I, O any](a huma.API, op huma.Operation, fn func(*I) (O, error)) {
	huma.Register(a, op, func(_ context.Context, in *I) (*answer[O], error) {
		v, err := fn(in)
		if err != nil {
			return nil, problem(err)
		}
		return &answer[O]{v}, nil
	})
}

var errStopping = &refusal{err: errors.New("the daemon is stopping; try again when it runs"), status: http.StatusServiceUnavailable}

// change registers an operation that a daemon that stops no longer carries out.
func change[I, O any](d *daemon, a huma.API, op huma.Operation, fn func(*I) (O, error)) {
	handle(a, op, func(in *I) (O, error) {
		if !d.beginChange() {
			var none O
			return none, errStopping
		}
		defer d.changes.Done()
		return fn(in)
	})
}

type (
	nothing struct{}
	named   struct {
		Name string `path:"name"`
	}
	with[T any] struct {
		Body T
	}
	namedWith[T any] struct {
		Name string `path:"name"`
		Body T
	}
)

// newAPI returns the interface: its operations on a mux, and their description.
func (d *daemon) newAPI() (http.Handler, *huma.OpenAPI) {
	useProblems()
	mux := http.NewServeMux()
	cfg := huma.DefaultConfig("arraysim", apiVersion)
	cfg.Info.Description = "The array's objects, faults and counters. Sizes are in bytes, times in nanoseconds where their names end in _ns. Errors are problem details (RFC 9457)."
	cfg.OpenAPIPath = apiPath + "/openapi"
	cfg.DocsPath, cfg.SchemasPath, cfg.CreateHooks = "", "", nil
	cfg.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer",
		Description: "What `arraysim token` prints. Not required on the folder's admin.sock, whose permissions protect it."}}
	a := humago.New(mux, cfg)
	d.readOperations(a)
	d.objectOperations(a)
	d.faultOperations(a)
	d.portOperations(a)
	d.moveOperations(a)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, http.StatusNotFound, fmt.Sprintf("there is no %s %s; see %s/openapi.json", r.Method, r.URL.Path, apiPath))
	})
	costly := newBounded(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == apiPath+"/history" {
			costly.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}), a.OpenAPI()
}

// OpenAPI returns the description of the daemon's HTTP interface, as JSON.
func OpenAPI() ([]byte, error) {
	_, doc := newDaemon(DefaultConfig(), Environment{}).newAPI()
	return json.MarshalIndent(doc, "", "  ")
}

func (d *daemon) readOperations(a huma.API) {
	get := func(path, id, summary string) huma.Operation { return operation(http.MethodGet, path, id, summary) }
	handle(a, get("/status", "get-status", "Describe the daemon"), func(*nothing) (Status, error) { return d.status(), nil })
	handle(a, get("/volumes", "list-volumes", "List the volumes"), func(*nothing) ([]Volume, error) { return d.listVolumes(), nil })
	handle(a, get("/volumes/{name}", "get-volume", "Describe a volume, its map and its cache"), func(in *named) (Volume, error) { return d.showVolume(in.Name) })
	handle(a, get("/pools", "list-pools", "List the pools"), func(*nothing) ([]Pool, error) { return d.listPools(), nil })
	handle(a, get("/exports", "list-exports", "List the exports"), func(*nothing) ([]Export, error) { return d.listExports(), nil })
	handle(a, get("/sessions", "list-sessions", "List the initiators that are logged in"), func(*nothing) ([]Session, error) { return d.sessions(), nil })
	handle(a, get("/offloads", "list-offloads", "List the offloads that are in flight"), func(*nothing) ([]Offload, error) { return d.offloads(), nil })
	handle(a, get("/counters", "get-counters", "Read the counters of both layers, added up by volume, pool and host"), func(*nothing) (Counters, error) { return d.counters(), nil })
	handle(a, get("/policy", "get-policy", "Read the policy of the write cache"), func(*nothing) (Policy, error) { return d.policy(), nil })
	type since struct {
		Since uint64 `query:"since" doc:"Only events of higher numbers."`
	}
	handle(a, get("/events", "list-events", "List recent events, oldest first"), func(in *since) ([]Event, error) { return d.events.since(in.Since), nil })
	handle(a, get("/history", "get-history", "Read the array's history: the last hour in seconds, the last week in steps of five minutes"), d.historyRange)
	handle(a, get("/findings", "list-findings", "List the findings that nobody has dismissed, and what was written below the host layer"), func(*nothing) (Findings, error) { return d.listFindings(), nil })
	samples := get("/samples", "get-samples", "Read all counters as the table of docs/counters.md")
	samples.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{"text/csv": {}}}}
	huma.Register(a, samples, func(context.Context, *nothing) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			r, w := humago.Unwrap(ctx)
			d.samples(w, r)
		}}, nil
	})
}

func (d *daemon) objectOperations(a huma.API) {
	post := func(path, id, summary string) huma.Operation { return operation(http.MethodPost, path, id, summary) }
	remove := func(path, id, summary string) huma.Operation { return operation(http.MethodDelete, path, id, summary) }
	// The guard has looked at the token by then.
	handle(a, post("/token", "check-token", "Report whether the token is valid; changes nothing"), func(*nothing) (nothing, error) { return nothing{}, nil })
	change(d, a, post("/check", "check", "Verify the array; hosts wait while it does"), func(*nothing) (CheckReport, error) {
		ctx, cancel := until(context.Background(), d.closing)
		defer cancel()
		return d.check(ctx)
	})
	change(d, a, post("/volumes", "create-volume", "Create a volume"), func(in *with[NewVolume]) (Volume, error) { return d.addVolume(in.Body) })
	type deletion struct {
		Name  string `path:"name"`
		Force bool   `query:"force" doc:"Even if it is exported or has dirty data."`
	}
	change(d, a, remove("/volumes/{name}", "delete-volume", "Delete a volume and its data"), func(in *deletion) (nothing, error) {
		return nothing{}, d.deleteVolume(in.Name, in.Force)
	})
	change(d, a, post("/volumes/{name}/resize", "resize-volume", "Change a volume's size"), func(in *namedWith[Resize]) (Volume, error) {
		if err := d.resizeVolume(in.Name, in.Body.Size, in.Body.Force); err != nil {
			return Volume{}, err
		}
		return d.showVolume(in.Name)
	})
	change(d, a, post("/volumes/{name}/clone", "clone-volume", "Create a volume with this one's present contents"), func(in *namedWith[Clone]) (Volume, error) { return d.cloneVolume(in.Name, in.Body) })
	change(d, a, post("/volumes/{name}/zero", "zero-volume", "Zero all of a volume, as WRITE SAME does"), func(in *named) (Volume, error) {
		if err := d.zeroVolume(in.Name); err != nil {
			return Volume{}, err
		}
		return d.showVolume(in.Name)
	})
	type numbered struct {
		ID uint64 `path:"id"`
	}
	change(d, a, remove("/findings/{id}", "dismiss-finding", "Dismiss a finding"), func(in *numbered) (Finding, error) { return d.findings.dismiss(in.ID) })
	change(d, a, post("/pools", "create-pool", "Create a pool"), func(in *with[NewPool]) (Pool, error) { return d.addPool(in.Body) })
	change(d, a, remove("/pools/{name}", "delete-pool", "Delete a pool that has no volumes"), func(in *named) (nothing, error) {
		return nothing{}, d.deletePool(in.Name)
	})
	change(d, a, post("/exports", "add-export", "Show a volume as a LUN"), func(in *with[Export]) (Export, error) { return d.addExport(in.Body) })
	type export struct {
		Volume string `path:"volume"`
		LUN    int    `query:"lun" default:"-1" minimum:"-1" doc:"If left out, all of the volume's exports."`
	}
	change(d, a, remove("/exports/{volume}", "remove-export", "Remove a volume's exports, or one of them"), func(in *export) (nothing, error) {
		return nothing{}, d.removeExport(in.Volume, in.LUN)
	})
}

func (d *daemon) faultOperations(a huma.API) {
	patch := func(path, id, summary string) huma.Operation { return operation(http.MethodPatch, path, id, summary) }
	change(d, a, patch("/policy", "change-policy", "Change the policy of the write cache; it is kept over restarts"), func(in *with[PolicyChange]) (Policy, error) { return d.changePolicy(in.Body) })
	change(d, a, patch("/pools/{name}", "change-pool", "Change how a pool takes writes, until the next start"), func(in *namedWith[PoolChange]) (Pool, error) {
		return d.changePool(in.Name, in.Body)
	})
	type mdisk struct {
		Pool  string `path:"name"`
		Mdisk string `path:"mdisk"`
		Body  MdiskChange
	}
	change(d, a, patch("/pools/{name}/mdisks/{mdisk}", "change-mdisk", "Slow an mdisk down or take it offline, until the next start"), func(in *mdisk) (Pool, error) {
		return d.changeMdisk(in.Pool, in.Mdisk, in.Body)
	})
	change(d, a, operation(http.MethodPut, "/mirror", "set-mirror", "Lose or restore the mirror of the write cache, until the next start"), func(in *with[Mirror]) (Mirror, error) {
		return in.Body, d.setMirror(in.Body)
	})
}

func (d *daemon) status() Status {
	s := Status{Version: Version(), PID: os.Getpid(), Data: d.cfg.Data, Store: d.cfg.Store, Portal: d.portalName(), TCMU: d.cfg.TCMU, Target: d.cfg.Portal.Target}
	if d.metricsAddr != nil {
		s.Page = "http://" + reachable(d.metricsAddr) + "/"
		s.Metrics = s.Page + "metrics"
	}
	s.Ownership, s.Nodes, s.Peers = d.data.ownership(), d.nodes(), d.peerStatus()
	s.Dirty, s.Mirrored = d.dirty(), true
	for _, g := range d.groups {
		g.exec.Lock()
		s.Mirrored = s.Mirrored && g.array.Mirrored()
		for _, line := range g.array.Health() {
			if len(d.groups) > 1 {
				line = fmt.Sprintf("I/O group %d: %s", g.number, line)
			}
			s.Health = append(s.Health, line)
		}
		g.exec.Unlock()
		s.Targets = append(s.Targets, groupTarget(s.Target, g.number))
	}
	return s
}

// portalName is the portal's address, or that there is none.
func (d *daemon) portalName() string {
	if d.portalAddr == nil {
		return listenNone
	}
	return reachable(d.portalAddr)
}

// reachable writes a listener's address so that a program on this machine can connect to it: a listener on all
// addresses is at that of the loopback interface.
func reachable(a net.Addr) string {
	t, ok := a.(*net.TCPAddr)
	if !ok || !t.IP.IsUnspecified() {
		return a.String()
	}
	host := "127.0.0.1" // [::] takes IPv4, too, unless the machine says otherwise
	if t.IP.To4() == nil && onlyIPv6() {
		host = "::1"
	}
	return net.JoinHostPort(host, strconv.Itoa(t.Port))
}

// onlyIPv6 tells whether sockets of IPv6 on this machine take no IPv4.
func onlyIPv6() bool {
	b, err := os.ReadFile("/proc/sys/net/ipv6/bindv6only")
	return err == nil && strings.TrimSpace(string(b)) == "1"
}

func (d *daemon) sessions() []Session {
	out := []Session{}
	for _, s := range d.portal.Sessions() {
		out = append(out, Session{Initiator: s.Initiator, Address: s.Address, Target: s.Target, Commands: s.Commands,
			Received: Size(s.ReceivedBytes), Sent: Size(s.SentBytes), Since: s.Since})
	}
	return out
}

// offloads lists what the SCSI layer has in flight. Nothing is kept for it: the executor is
// held for a walk through the task sets.
func (d *daemon) offloads() []Offload {
	return each(d, (*ioGroup).offloads)
}

func (g *ioGroup) offloads() []Offload {
	g.exec.Lock()
	list, now := g.target.Offloads(nil), g.exec.Now()
	g.exec.Unlock()
	wall, out := time.Now(), []Offload{}
	for _, o := range list {
		age := max(now-o.Start, 0)
		out = append(out, Offload{Volume: o.Volume, Initiator: o.Initiator, Primitive: o.Primitive, Done: Size(o.Done), Total: Size(o.Total),
			Since: wall.Add(-time.Duration(age)), Age: age, Background: o.Background})
	}
	return out
}

// check verifies the array while it serves: no step holds the executor for long.
func (d *daemon) check(ctx context.Context) (CheckReport, error) {
	var all array.Report
	for _, g := range d.groups {
		r, _, err := verify(ctx, g.exec, g.array, false, nil)
		if errors.Is(err, context.Canceled) {
			return report(r), errStopping
		}
		if err != nil {
			return report(r), err
		}
		all = all.Plus(inGroup(r, g.number, len(d.groups)))
	}
	return report(all), nil
}

func report(r array.Report) CheckReport {
	return CheckReport{OK: len(r.Problems) == 0, Problems: append([]string{}, r.Problems...), Volumes: r.Volumes, Windows: r.Windows,
		Pages: r.Pages, Conserved: Size(r.Conserved), BadSectors: r.BadSectors}
}
