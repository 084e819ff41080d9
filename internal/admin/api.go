package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"

	"github.com/arraysim/arraysim/internal/array"
)

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

// maxBody bounds what a request may send.
const maxBody = 1 << 20

// routes is the interface of the daemon: JSON over HTTP on the admin socket.
func (d *daemon) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, fn func(r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			v, err := fn(r)
			if err == nil {
				reply(w, http.StatusOK, v)
				return
			}
			status, p := http.StatusBadRequest, Problem{Message: err.Error()}
			var no *refusal
			switch {
			case errors.As(err, &no):
				status, p.Force = no.status, no.force
			case errors.Is(err, array.ErrNotFound):
				status = http.StatusNotFound
			case errors.Is(err, array.ErrExists), errors.Is(err, array.ErrInUse):
				status = http.StatusConflict
			}
			reply(w, status, p)
		})
	}
	// change is handle for what a daemon that stops no longer does.
	change := func(pattern string, fn func(r *http.Request) (any, error)) {
		handle(pattern, func(r *http.Request) (any, error) {
			if !d.beginChange() {
				return nil, &refusal{err: errors.New("the daemon stops; try again when it runs"), status: http.StatusServiceUnavailable}
			}
			defer d.changes.Done()
			v, err := fn(r)
			d.log.Info("admin", "request", r.Method+" "+r.URL.Path, "error", err)
			return v, err
		})
	}
	handle("GET /v1/status", func(*http.Request) (any, error) { return d.status(), nil })
	handle("GET /v1/volumes", func(*http.Request) (any, error) { return d.listVolumes(), nil })
	handle("GET /v1/volumes/{name}", func(r *http.Request) (any, error) { return d.showVolume(r.PathValue("name")) })
	handle("GET /v1/pools", func(*http.Request) (any, error) { return d.listPools(), nil })
	handle("GET /v1/exports", func(*http.Request) (any, error) { return d.listExports(), nil })
	handle("GET /v1/sessions", func(*http.Request) (any, error) { return d.sessions(), nil })
	handle("GET /v1/counters", func(*http.Request) (any, error) { return d.counters(), nil })
	mux.HandleFunc("GET /v1/samples", d.samples)
	handle("POST /v1/check", func(*http.Request) (any, error) { return d.check(), nil })
	change("POST /v1/volumes", with(func(_ *http.Request, n NewVolume) (any, error) { return d.addVolume(n) }))
	change("DELETE /v1/volumes/{name}", func(r *http.Request) (any, error) {
		return nil, d.deleteVolume(r.PathValue("name"), r.URL.Query().Get("force") == "true")
	})
	change("POST /v1/volumes/{name}/resize", with(func(r *http.Request, z Resize) (any, error) {
		if err := d.resizeVolume(r.PathValue("name"), z.Size, z.Force); err != nil {
			return nil, err
		}
		return d.showVolume(r.PathValue("name"))
	}))
	change("POST /v1/volumes/{name}/clone", with(func(r *http.Request, c Clone) (any, error) { return d.cloneVolume(r.PathValue("name"), c) }))
	change("POST /v1/pools", with(func(_ *http.Request, n NewPool) (any, error) { return d.addPool(n) }))
	change("POST /v1/exports", with(func(_ *http.Request, e Export) (any, error) { return e, d.addExport(e) }))
	change("DELETE /v1/exports/{volume}", func(r *http.Request) (any, error) {
		lun := -1
		if q := r.URL.Query().Get("lun"); q != "" {
			var err error
			if lun, err = strconv.Atoi(q); err != nil {
				return nil, fmt.Errorf("%q is no LUN", q)
			}
		}
		return nil, d.removeExport(r.PathValue("volume"), lun)
	})
	return mux
}

// with decodes the body of a request.
func with[T any](fn func(*http.Request, T) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		var v T
		dec := json.NewDecoder(r.Body)
		dec.DisallowUnknownFields()
		if err := dec.Decode(&v); err != nil {
			return nil, fmt.Errorf("the request's body is not what this daemon takes: %w", err)
		}
		return fn(r, v)
	}
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// An error here means that the client has gone.
	_ = json.NewEncoder(w).Encode(v)
}

func (d *daemon) status() Status {
	s := Status{Version: Version(), PID: os.Getpid(), Data: d.cfg.Data, Store: d.cfg.Store, Portal: d.portalName(), TCMU: d.cfg.TCMU, Target: d.cfg.Portal.Target}
	if d.metricsAddr != nil {
		s.Metrics = "http://" + d.metricsAddr.String() + "/metrics"
	}
	d.exec.Lock()
	s.Dirty = Size(d.array.Dirty())
	d.exec.Unlock()
	return s
}

// portalName is the portal's address, or that there is none.
func (d *daemon) portalName() string {
	if d.portalAddr == nil {
		return listenNone
	}
	return d.portalAddr.String()
}

func (d *daemon) sessions() []Session {
	out := []Session{}
	for _, s := range d.portal.Sessions() {
		out = append(out, Session{Initiator: s.Initiator, Address: s.Address, Target: s.Target, Commands: s.Commands})
	}
	return out
}

func (d *daemon) check() CheckReport {
	d.exec.Lock()
	r := d.array.Check(true)
	d.exec.Unlock()
	return report(r)
}

func report(r array.Report) CheckReport {
	return CheckReport{OK: len(r.Problems) == 0, Problems: append([]string{}, r.Problems...), Volumes: r.Volumes, Windows: r.Windows,
		Pages: r.Pages, Conserved: Size(r.Conserved), BadSectors: r.BadSectors}
}
