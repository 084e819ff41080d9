package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"syscall"
)

// Client talks to the daemon of a data folder. Its methods may be called from any
// goroutine; an error of the daemon is one line that says what is wrong.
type Client struct {
	data string
	http http.Client
}

// NewClient returns a client of the daemon that has the data folder open.
func NewClient(data string) *Client {
	c := &Client{data: data}
	c.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (nc net.Conn, err error) {
		err = withSocketPath(filepath.Join(data, socketName), func(path string) error {
			nc, err = (&net.Dialer{}).DialContext(ctx, "unix", path)
			return err
		})
		return nc, err
	}}
	return c
}

// ErrNoDaemon says that nothing answers for a data folder.
var ErrNoDaemon = errors.New("no daemon runs")

// ErrForce is in the errors of requests that force would let through.
var ErrForce = errors.New("force")

// answerError is the daemon's refusal.
type answerError struct{ Problem }

func (e *answerError) Error() string { return e.Detail }
func (e *answerError) Is(target error) bool {
	return target == ErrForce && e.Force
}

func call[T any](c *Client, ctx context.Context, method, path string, body any) (T, error) {
	var out T
	var b []byte
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			return out, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://arraysim"+path, bytes.NewReader(b))
	if err != nil {
		return out, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return out, c.unreachable(err)
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	if resp.StatusCode != http.StatusOK {
		e := &answerError{}
		if dec.Decode(&e.Problem) != nil || e.Detail == "" {
			e.Detail = "the daemon answers " + resp.Status + "; is it a different version?"
		}
		return out, e
	}
	if err := dec.Decode(&out); err != nil {
		return out, fmt.Errorf("the daemon's answer is malformed: %w; is it a different version?", err)
	}
	return out, nil
}

// unreachable says what an error of the connection means.
func (c *Client) unreachable(err error) error {
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w on the data folder %s; start one with: arraysim serve, or name its folder with --data", ErrNoDaemon, c.data)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fmt.Errorf("the daemon of %s does not answer: %w", c.data, err)
}

func volumePath(name string) string { return "/api/v1/volumes/" + url.PathEscape(name) }

// Status describes the daemon.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return call[Status](c, ctx, "GET", "/api/v1/status", nil)
}

// Volumes lists the volumes.
func (c *Client) Volumes(ctx context.Context) ([]Volume, error) {
	return call[[]Volume](c, ctx, "GET", "/api/v1/volumes", nil)
}

// Volume describes a volume in detail.
func (c *Client) Volume(ctx context.Context, name string) (Volume, error) {
	return call[Volume](c, ctx, "GET", volumePath(name), nil)
}

// CreateVolume makes a volume.
func (c *Client) CreateVolume(ctx context.Context, n NewVolume) (Volume, error) {
	return call[Volume](c, ctx, "POST", "/api/v1/volumes", n)
}

// DeleteVolume removes a volume. Without force the error is ErrForce when it is
// exported or has dirty data.
func (c *Client) DeleteVolume(ctx context.Context, name string, force bool) error {
	_, err := call[any](c, ctx, "DELETE", volumePath(name)+"?force="+strconv.FormatBool(force), nil)
	return err
}

// ResizeVolume changes a volume's size. Without force the error is ErrForce when
// it would become smaller.
func (c *Client) ResizeVolume(ctx context.Context, name string, r Resize) (Volume, error) {
	return call[Volume](c, ctx, "POST", volumePath(name)+"/resize", r)
}

// CloneVolume makes a copy of a volume.
func (c *Client) CloneVolume(ctx context.Context, source string, n Clone) (Volume, error) {
	return call[Volume](c, ctx, "POST", volumePath(source)+"/clone", n)
}

// ZeroVolume zeroes all of a volume.
func (c *Client) ZeroVolume(ctx context.Context, name string) (Volume, error) {
	return call[Volume](c, ctx, "POST", volumePath(name)+"/zero", nil)
}

// Pools lists the pools.
func (c *Client) Pools(ctx context.Context) ([]Pool, error) {
	return call[[]Pool](c, ctx, "GET", "/api/v1/pools", nil)
}

// CreatePool makes a pool.
func (c *Client) CreatePool(ctx context.Context, n NewPool) (Pool, error) {
	return call[Pool](c, ctx, "POST", "/api/v1/pools", n)
}

// Exports lists the exports.
func (c *Client) Exports(ctx context.Context) ([]Export, error) {
	return call[[]Export](c, ctx, "GET", "/api/v1/exports", nil)
}

// AddExport shows a volume as a LUN.
func (c *Client) AddExport(ctx context.Context, e Export) error {
	_, err := call[Export](c, ctx, "POST", "/api/v1/exports", e)
	return err
}

// RemoveExport ends a volume's export as lun, or all of them when lun is negative.
func (c *Client) RemoveExport(ctx context.Context, volume string, lun int) error {
	path := "/api/v1/exports/" + url.PathEscape(volume)
	if lun >= 0 {
		path += "?lun=" + strconv.Itoa(lun)
	}
	_, err := call[any](c, ctx, "DELETE", path, nil)
	return err
}

// Sessions lists the initiators that are logged in.
func (c *Client) Sessions(ctx context.Context) ([]Session, error) {
	return call[[]Session](c, ctx, "GET", "/api/v1/sessions", nil)
}

// Offloads lists the offloads that are in flight.
func (c *Client) Offloads(ctx context.Context) ([]Offload, error) {
	return call[[]Offload](c, ctx, "GET", "/api/v1/offloads", nil)
}

// Counters reads the counters of both layers.
func (c *Client) Counters(ctx context.Context) (Counters, error) {
	return call[Counters](c, ctx, "GET", "/api/v1/counters", nil)
}

// DeletePool removes a pool without volumes.
func (c *Client) DeletePool(ctx context.Context, name string) error {
	_, err := call[any](c, ctx, "DELETE", "/api/v1/pools/"+url.PathEscape(name), nil)
	return err
}

// ChangePool changes how a pool takes writes.
func (c *Client) ChangePool(ctx context.Context, name string, p PoolChange) (Pool, error) {
	return call[Pool](c, ctx, "PATCH", "/api/v1/pools/"+url.PathEscape(name), p)
}

// ChangeMdisk slows an mdisk down, takes it away or gives it back.
func (c *Client) ChangeMdisk(ctx context.Context, pool, mdisk string, m MdiskChange) (Pool, error) {
	return call[Pool](c, ctx, "PATCH", "/api/v1/pools/"+url.PathEscape(pool)+"/mdisks/"+url.PathEscape(mdisk), m)
}

// SetMirror takes the mirror of the write cache away or gives it back.
func (c *Client) SetMirror(ctx context.Context, mirrored bool) error {
	_, err := call[Mirror](c, ctx, "PUT", "/api/v1/mirror", Mirror{mirrored})
	return err
}

// Policy reads the policy of the write cache.
func (c *Client) Policy(ctx context.Context) (Policy, error) {
	return call[Policy](c, ctx, "GET", "/api/v1/policy", nil)
}

// ChangePolicy changes what p names of the policy.
func (c *Client) ChangePolicy(ctx context.Context, p PolicyChange) (Policy, error) {
	return call[Policy](c, ctx, "PATCH", "/api/v1/policy", p)
}

// Events lists what happened of late, behind a number.
func (c *Client) Events(ctx context.Context, since uint64) ([]Event, error) {
	return call[[]Event](c, ctx, "GET", "/api/v1/events?since="+strconv.FormatUint(since, 10), nil)
}

// Check verifies the running array. Hosts wait while it does.
func (c *Client) Check(ctx context.Context) (CheckReport, error) {
	return call[CheckReport](c, ctx, "POST", "/api/v1/check", nil)
}

// History reads what the array did; zero fields of q mean their defaults.
func (c *Client) History(ctx context.Context, q HistoryQuery) (HistoryRange, error) {
	v := url.Values{}
	for name, n := range map[string]int64{"seconds": q.Seconds, "to_ms": q.To, "points": int64(q.Points), "top": int64(q.Top), "slowest": int64(q.Slowest)} {
		if n != 0 {
			v.Set(name, strconv.FormatInt(n, 10))
		}
	}
	if q.Volume != "" {
		v.Set("volume", q.Volume)
	}
	return call[HistoryRange](c, ctx, "GET", "/api/v1/history?"+v.Encode(), nil)
}

// Move moves the array to another node that stands by.
func (c *Client) Move(ctx context.Context, m Move) (MoveStatus, error) {
	return call[MoveStatus](c, ctx, "POST", "/api/v1/instance/move", m)
}

// Findings lists what nobody has dismissed, and the totals.
func (c *Client) Findings(ctx context.Context) (Findings, error) {
	return call[Findings](c, ctx, "GET", "/api/v1/findings", nil)
}

// DismissFinding dismisses a finding.
func (c *Client) DismissFinding(ctx context.Context, id uint64) (Finding, error) {
	return call[Finding](c, ctx, "DELETE", "/api/v1/findings/"+strconv.FormatUint(id, 10), nil)
}
