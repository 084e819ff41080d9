package exposition

import (
	"io"

	"github.com/arraysim/arraysim/internal/metrics"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/proto"
)

// Text collects series and writes them in Prometheus' text format. The zero value is empty and ready.
// It is not safe for concurrent use.
type Text struct {
	families [][]*dto.Metric // by the family's index
}

// Add takes one series. owner is the value of a label "array" beside the family's own, whose values are
// in the order of f.Labels; h is nil but for histograms. Nothing of it is kept but the strings.
func (t *Text) Add(f *metrics.Family, owner string, labels []string, v float64, h *metrics.Histogram) {
	if t.families == nil {
		t.families = make([][]*dto.Metric, len(metrics.All()))
	}
	m := (&shown{}).set(f, labels, v, h)
	m.Label = append([]*dto.LabelPair{{Name: proto.String("array"), Value: &owner}}, m.Label...)
	t.families[f.Index()] = append(t.families[f.Index()], m)
}

// WriteTo writes all series, by family in the order of [All], and returns how many bytes that are.
func (t *Text) WriteTo(w io.Writer) (int64, error) {
	sum := int64(0)
	for i, series := range t.families {
		if len(series) == 0 {
			continue
		}
		f := familyOf(metrics.All()[i])
		f.Metric = series
		n, err := expfmt.MetricFamilyToText(w, f)
		if sum += int64(n); err != nil {
			return sum, err
		}
	}
	return sum, nil
}
