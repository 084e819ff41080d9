package cachedaemon

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/arraysim/arraysim/internal/hostcache/tier"
)

// control opens the socket that the policy commands use.
func (d *daemon) control() (*http.Server, error) {
	l, err := listenSocket(d.cfg.Socket)
	if err != nil {
		return nil, err
	}
	d.socket = l
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathCache, func(w http.ResponseWriter, _ *http.Request) { d.send(w, d.report()) })
	mux.HandleFunc("POST "+pathReset, func(w http.ResponseWriter, _ *http.Request) {
		d.exec.Lock()
		d.disk.ResetStats()
		d.exec.Unlock()
		d.send(w, d.report())
	})
	mux.HandleFunc("GET "+pathHistograms, d.histograms)
	mux.HandleFunc("POST "+pathHistograms, d.histograms)
	mux.HandleFunc("POST "+pathDrop, d.drop)
	mux.HandleFunc("GET "+pathContents, d.contents)
	mux.HandleFunc("POST "+pathWarm, d.warm)
	mux.HandleFunc("POST "+pathPolicy, d.setPolicy)
	mux.HandleFunc("POST "+pathQuiesce, d.quiesce)
	mux.HandleFunc("POST "+pathResume, d.resume)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go s.Serve(l) // ends with Close
	return s, nil
}

func (d *daemon) send(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		d.log.Debug("an answer was not delivered", "error", err)
	}
}

func (d *daemon) report() Report {
	d.exec.Lock()
	defer d.exec.Unlock()
	st := d.disk.State()
	return Report{LUN: d.disk.Info().Name, Requested: st.Requested.String(), Effective: st.Effective.String(), State: st, Cache: d.disk.CacheStats(), Views: d.disk.Views(),
		Counters: d.disk.Stats(), Recovery: d.disk.Recovery(), TimeToGo: float64(st.TimeToDestage) / 1e9}
}

func (d *daemon) setPolicy(w http.ResponseWriter, r *http.Request) {
	var q policyRequest
	p, err := tier.Policy{}, json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&q)
	if err == nil {
		p, err = tier.ParsePolicy(q.Policy)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	done := make(chan struct{})
	d.exec.Lock()
	d.disk.SetPolicy(p, func() { close(done) })
	d.exec.Unlock()
	if q.Wait {
		select {
		case <-done:
		case <-r.Context().Done():
			return
		}
	}
	d.send(w, d.report())
}

func (d *daemon) quiesce(w http.ResponseWriter, r *http.Request) {
	var q quiesceRequest
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&q); err != nil || q.Seconds <= 0 || q.Seconds > 7*24*3600 {
		http.Error(w, "expires_seconds is a number of seconds above 0, at most a week", http.StatusBadRequest)
		return
	}
	got := make(chan uint64, 1)
	d.exec.Lock()
	held := d.disk.Quiesce(int64(q.Seconds*1e9), func(token uint64) { got <- token })
	d.exec.Unlock()
	var token uint64
	select {
	case token = <-got:
	case <-r.Context().Done():
	}
	switch {
	case r.Context().Err() != nil: // nobody has the token, or would give it back
		d.exec.Lock()
		d.disk.Resume(held)
		d.exec.Unlock()
	case token == 0:
		http.Error(w, "the quiesce has ended before everything was destaged; give it more time with --expire, or see with `arraysim hostcache policy stats` what delays it", http.StatusServiceUnavailable)
	default:
		d.send(w, Token{token})
	}
}

func (d *daemon) resume(w http.ResponseWriter, r *http.Request) {
	var q Token
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d.exec.Lock()
	ok := d.disk.Resume(q.Token)
	d.exec.Unlock()
	if !ok {
		http.Error(w, fmt.Sprintf("token %d is not valid: it was returned, or it has expired", q.Token), http.StatusNotFound)
		return
	}
	d.send(w, d.report())
}
