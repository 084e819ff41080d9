package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/hostcache/tier"
)

// cacheReport is what `policy stats` shows.
type cacheReport struct {
	LUN       string          `json:"lun"`
	Requested string          `json:"requested_policy"`
	Effective string          `json:"effective_policy"`
	State     tier.State      `json:"state"`
	Cache     tier.CacheStats `json:"cache"`
	Views     tier.Views      `json:"views"`
	Counters  tier.Stats      `json:"counters"`
	Recovery  tier.Recovery   `json:"recovery"`
	TimeToGo  float64         `json:"time_to_destage_seconds"`
}

type policyRequest struct {
	Policy string `json:"policy"`
	Wait   bool   `json:"wait"`
}

type quiesceRequest struct {
	Seconds float64 `json:"expires_seconds"`
}

type tokenAnswer struct {
	Token uint64 `json:"token"`
}

// control opens the socket that the policy commands use.
func (d *cacheDaemon) control() (*http.Server, error) {
	if nc, err := net.Dial("unix", d.f.socket); err == nil {
		nc.Close()
		return nil, fmt.Errorf("another hostcache answers on %s; choose another by --socket", d.f.socket)
	}
	os.Remove(d.f.socket)
	l, err := net.Listen("unix", d.f.socket)
	if err != nil {
		return nil, fmt.Errorf("the socket %s cannot be made: %w; choose another by --socket", d.f.socket, err)
	}
	if err := os.Chmod(d.f.socket, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/cache", func(w http.ResponseWriter, _ *http.Request) { d.send(w, d.report()) })
	mux.HandleFunc("POST /v1/cache/reset", func(w http.ResponseWriter, _ *http.Request) {
		d.exec.Lock()
		d.disk.ResetStats()
		d.exec.Unlock()
		d.send(w, d.report())
	})
	mux.HandleFunc("POST /v1/cache/drop", d.drop)
	mux.HandleFunc("GET /v1/cache/contents", d.contents)
	mux.HandleFunc("POST /v1/cache/warm", d.warm)
	mux.HandleFunc("GET /v1/cache/histograms", d.histograms)
	mux.HandleFunc("POST /v1/cache/histograms", d.histograms)
	mux.HandleFunc("POST /v1/cache/policy", d.setPolicy)
	mux.HandleFunc("POST /v1/cache/quiesce", d.quiesce)
	mux.HandleFunc("POST /v1/cache/resume", d.resume)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go s.Serve(l) // ends with Close
	return s, nil
}

func (d *cacheDaemon) send(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		d.log.Debug("an answer did not get there", "error", err)
	}
}

func (d *cacheDaemon) report() cacheReport {
	d.exec.Lock()
	defer d.exec.Unlock()
	st := d.disk.State()
	return cacheReport{LUN: d.disk.Info().Name, Requested: st.Requested.String(), Effective: st.Effective.String(), State: st, Cache: d.disk.CacheStats(), Views: d.disk.Views(),
		Counters: d.disk.Stats(), Recovery: d.disk.Recovery(), TimeToGo: float64(st.TimeToDestage) / 1e9}
}

func (d *cacheDaemon) setPolicy(w http.ResponseWriter, r *http.Request) {
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

func (d *cacheDaemon) quiesce(w http.ResponseWriter, r *http.Request) {
	var q quiesceRequest
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&q); err != nil || q.Seconds <= 0 || q.Seconds > 7*24*3600 {
		http.Error(w, "expires_seconds is a number of seconds above 0, at most a week", http.StatusBadRequest)
		return
	}
	got := make(chan uint64, 1)
	d.exec.Lock()
	d.disk.Quiesce(int64(q.Seconds*1e9), func(token uint64) { got <- token })
	d.exec.Unlock()
	select {
	case token := <-got:
		if token == 0 {
			http.Error(w, "the quiesce has ended before everything was destaged; give it more time with --expire, or see with `arraysim hostcache policy stats` what keeps it", http.StatusServiceUnavailable)
			return
		}
		d.send(w, tokenAnswer{token})
	case <-r.Context().Done():
	}
}

func (d *cacheDaemon) resume(w http.ResponseWriter, r *http.Request) {
	var q tokenAnswer
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d.exec.Lock()
	ok := d.disk.Resume(q.Token)
	d.exec.Unlock()
	if !ok {
		http.Error(w, fmt.Sprintf("token %d is not held: it was given back, or it has expired", q.Token), http.StatusNotFound)
		return
	}
	d.send(w, d.report())
}

// askCache calls the daemon of a socket.
func askCache(ctx context.Context, socket, method, path string, body, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequestWithContext(ctx, method, "http://hostcache"+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return fmt.Errorf("no hostcache answers on %s; start one with `arraysim hostcache serve`, or give its --socket", socket)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		return errors.New(string(bytes.TrimSpace(text)))
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

func (a *app) cachePolicy() *cobra.Command {
	var socket string
	c := &cobra.Command{
		Use: "policy", Short: "Drive a running cache: policy, quiesce, statistics",
		Example: "  arraysim hostcache policy set write_back+1\n  arraysim hostcache policy quiesce --expire 10m",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return errors.New("policy needs a command") },
	}
	c.PersistentFlags().StringVar(&socket, "socket", defaultSocket, "socket of 'arraysim hostcache serve'")
	call := func(cmd *cobra.Command, method, path string, body any) error {
		var r cacheReport
		if err := askCache(cmd.Context(), socket, method, path, body, &r); err != nil {
			return err
		}
		return show(a, cmd, r, printCache)
	}
	var noWait bool
	set := &cobra.Command{
		Use: "set POLICY", Short: "Ask for off, write_through, write_back or write_back+PEERS", Example: "  arraysim hostcache policy set write_through",
		Long: "set asks for a policy and waits until it is in effect: dirty data is destaged before a policy that has none.",
		Args: cobra.ExactArgs(1),
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			if _, err := tier.ParsePolicy(args[0]); err != nil {
				return err
			}
			return call(cmd, http.MethodPost, "/v1/cache/policy", policyRequest{args[0], !noWait})
		}),
	}
	set.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until it is in effect")
	var expire time.Duration
	quiesce := &cobra.Command{
		Use: "quiesce", Short: "Destage everything and write through, for a backup or a snapshot; prints a token", Example: "  token=$(arraysim hostcache policy quiesce --expire 30m)",
		Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			var t tokenAnswer
			if err := askCache(cmd.Context(), socket, http.MethodPost, "/v1/cache/quiesce", quiesceRequest{expire.Seconds()}, &t); err != nil {
				return err
			}
			return show(a, cmd, t, func(w io.Writer, t tokenAnswer) { fmt.Fprintln(w, t.Token) })
		}),
	}
	quiesce.Flags().DurationVar(&expire, "expire", 10*time.Minute, "when it ends by itself")
	resume := &cobra.Command{
		Use: "resume TOKEN", Short: "End a quiesce", Example: "  arraysim hostcache policy resume 1", Args: cobra.ExactArgs(1),
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			n, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil {
				return fmt.Errorf("%q is not a valid token; give the number that quiesce printed", args[0])
			}
			return call(cmd, http.MethodPost, "/v1/cache/resume", tokenAnswer{n})
		}),
	}
	var reset bool
	stats := &cobra.Command{
		Use: "stats", Short: "Print the state of the cache and its statistics", Example: "  arraysim hostcache policy stats --json", Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			if reset {
				return call(cmd, http.MethodPost, "/v1/cache/reset", nil)
			}
			return call(cmd, http.MethodGet, "/v1/cache", nil)
		}),
	}
	stats.Flags().BoolVar(&reset, "reset", false, "restart the statistics from 0")
	for _, sub := range []*cobra.Command{set, quiesce, resume, stats} {
		c.AddCommand(a.jsonFlag(sub))
	}
	return c
}

// printCache prints a report for people, in the words of the documents.
func printCache(w io.Writer, r cacheReport) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name string, v any) { fmt.Fprintf(t, "%s\t%v\n", name, v) }
	line("Requested policy", r.Requested)
	effective := r.Effective
	if r.State.Why != "" {
		effective += " (" + r.State.Why + ")"
	}
	line("Effective policy", effective)
	line("Dirty", fmt.Sprintf("%d of %d KiB, time to destage %.1f s", r.State.DirtySectors/2, r.State.AreaSectors/2, r.TimeToGo))
	line("Peers", fmt.Sprintf("%v, lost %v", r.State.Peers, r.State.LostPeers))
	for _, why := range r.State.LeftAlone {
		line("Left alone", why)
	}
	if r.State.Unmarked {
		line("Unmarked", "a flash was left out, and nothing records it: format it before it is used again")
	}
	line("Read: cache hit rate (%)", r.Cache.HitRate)
	line("Cache usage rate (%)", r.Cache.UsageRate)
	line("Blocks cached", fmt.Sprintf("%d of %d of %d KB", r.Cache.NumBlocksCached, r.Cache.NumBlocks, r.Cache.BlockSizeKB))
	line("Evict: mean blocks per I/O operation", r.Cache.EvictMeanBlocks)
	for _, v := range []struct {
		name        string
		read, write tier.Flow
	}{
		{"Total (effective)", r.Views.Effective.Read, r.Views.Effective.Write},
		{"Local flash", r.Views.LocalFlash.Read, r.Views.LocalFlash.Write},
		{"Network flash", r.Views.NetworkFlash.Read, r.Views.NetworkFlash.Write},
		{"Datastore", r.Views.Datastore.Read, r.Views.Datastore.Write},
	} {
		line(v.name, fmt.Sprintf("read %d I/Os, %d KiB, %.3f ms; write %d I/Os, %d KiB, %.3f ms",
			v.read.IOs, v.read.Bytes>>10, float64(v.read.Mean())/1e6, v.write.IOs, v.write.Bytes>>10, float64(v.write.Mean())/1e6))
	}
	line("Throttled writes", r.Counters.ThrottledWrites)
	line("Superseded by offloads (KiB)", r.Counters.SupersededSectors/2)
	line("Destaged for offloads (KiB)", r.Counters.OffloadFlushSectors/2)
	t.Flush()
}
