package cachedaemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/arraysim/arraysim/internal/trace"
)

// Client asks the daemon of a socket. Its methods may be called concurrently. Their errors are those
// of the daemon in its own words, or say that none answers.
type Client struct {
	socket string
	http   http.Client
}

// NewClient returns a client of the daemon that has this socket; it is asked nothing yet.
func NewClient(socket string) *Client {
	c := &Client{socket: socket}
	c.http.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	return c
}

// Report returns the state and the statistics.
func (c *Client) Report(ctx context.Context) (*Report, error) {
	return c.report(ctx, http.MethodGet, pathCache, nil)
}

// ResetStats restarts the statistics from 0, and returns what they are then.
func (c *Client) ResetStats(ctx context.Context) (*Report, error) {
	return c.report(ctx, http.MethodPost, pathReset, nil)
}

// SetPolicy asks for a policy, and waits until it is in effect if wait says so.
func (c *Client) SetPolicy(ctx context.Context, policy string, wait bool) (*Report, error) {
	return c.report(ctx, http.MethodPost, pathPolicy, policyRequest{policy, wait})
}

// Quiesce has everything destaged and then written through until Resume, or until it expires.
func (c *Client) Quiesce(ctx context.Context, expire time.Duration) (t Token, err error) {
	err = c.ask(ctx, http.MethodPost, pathQuiesce, quiesceRequest{expire.Seconds()}, &t)
	return t, err
}

// Resume ends a quiesce.
func (c *Client) Resume(ctx context.Context, t Token) (*Report, error) {
	return c.report(ctx, http.MethodPost, pathResume, t)
}

// Histograms returns those of all requests since the start or the last reset, and resets them
// behind that if it shall.
func (c *Client) Histograms(ctx context.Context, reset bool) (*trace.Histograms, error) {
	method := http.MethodGet
	if reset {
		method = http.MethodPost
	}
	h := &trace.Histograms{}
	if err := c.ask(ctx, method, pathHistograms, nil, h); err != nil {
		return nil, err
	}
	return h, nil
}

func (c *Client) report(ctx context.Context, method, path string, body any) (*Report, error) {
	r := &Report{}
	if err := c.ask(ctx, method, path, body, r); err != nil {
		return nil, err
	}
	return r, nil
}

func (c *Client) ask(ctx context.Context, method, path string, body, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://hostcache"+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("no hostcache answers on %s; start one with `arraysim hostcache serve`, or give its --socket", c.socket)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		return errors.New(string(bytes.TrimSpace(text)))
	}
	return json.NewDecoder(io.LimitReader(resp.Body, pageBytes+1<<20)).Decode(answer) // a page of contents is the longest
}
