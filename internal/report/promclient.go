//go:build !noparquet

package report

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	promapi "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// fromPrometheus asks the Prometheus at a URL, whose path may be a prefix, for the last of its counters.
func fromPrometheus(ctx context.Context, base string, opt Options) (*Data, error) {
	last := opt.Last
	if last == 0 {
		last = time.Hour
	}
	step := opt.Step
	if step == 0 {
		step = max((last / 240).Round(time.Second), 5*time.Second)
	}
	client, err := api.NewClient(api.Config{Address: strings.TrimSuffix(base, "/")})
	if err != nil {
		return nil, err
	}
	end := time.Now().Truncate(time.Second)
	b := newPromRange()
	for _, q := range slices.Concat(promQueries, []string{shownQuery(step)}) {
		v, warnings, _, err := promapi.NewAPI(client).QueryRange(ctx, q, promapi.Range{Start: end.Add(-last), End: end, Step: step})
		if err != nil {
			return nil, fmt.Errorf("the Prometheus does not answer %s: %w", q, err)
		}
		for _, w := range warnings {
			b.notes = append(b.notes, "the Prometheus warns: "+w)
		}
		m, ok := v.(model.Matrix)
		if !ok {
			return nil, fmt.Errorf("the Prometheus answers a range with a %s", v.Type())
		}
		name := sumNames[q]
		if q == shownQuery(step) {
			name = shown
		}
		b.matrix(m, name)
	}
	return b.data(base), nil
}
