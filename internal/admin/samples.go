package admin

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/metrics/export"
)

// samples answers with all counters as they are now, as the table of docs/counters.md
// in CSV. The executor is held while integers are copied, not while they are written.
func (d *daemon) samples(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/csv; header=present")
	var s metrics.Snapshot
	s.Take(time.Now().UnixNano(), metrics.Unlocked, d.allCounters()...)
	// An error here means that the client has gone.
	_ = export.NewCSV(w).Write(&s)
}

// Samples reads all counters at one instant into s.
func (c *Client) Samples(ctx context.Context, s *metrics.Snapshot) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://arraysim/api/v1/samples", nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the daemon answers %s; is it a different version?", resp.Status)
	}
	rows, err := export.NewCSVReader(resp.Body)
	if err == nil {
		err = export.NewSnapshotReader(rows).Read(s)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	if err != nil {
		return fmt.Errorf("the daemon's counters are malformed: %w; is it a different version?", err)
	}
	return nil
}
