package inferencex

import (
	"fmt"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
)

// A Mark stands in a row, beside InferenceX's keys, where the row must not be taken for that of a
// valid measurement.
type Mark struct {
	Simulated bool `json:"weir_simulated"` // no real engine answered
	Valid     bool `json:"weir_valid"`
	// Reasons says why: "simulated: no engine ran", "20 times as fast as it says", and "invalid: "
	// with the code and text of what makes the result not valid, or the code alone where the row is
	// of AIPerf's artifacts, which hold no more.
	Reasons []string `json:"weir_reasons"`
}

const noEngine = "simulated: no engine ran"

// MarkOf is the mark of a bundle's row; nil where the bundle is measured and valid.
func MarkOf(b *record.Bundle) (*Mark, error) {
	r, err := result.Derive(b)
	if err != nil {
		return nil, err
	}
	m := &Mark{Simulated: r.Simulated, Valid: r.Valid, Reasons: []string{}}
	if r.Simulated {
		m.Reasons = append(m.Reasons, noEngine)
	}
	if r.OffSpeed() {
		m.Reasons = append(m.Reasons, fmt.Sprintf("%g times as fast as it says", r.SimSpeed))
	}
	for _, f := range r.Reasons {
		if f.Code != result.SimulatedSpeed {
			m.Reasons = append(m.Reasons, fmt.Sprintf("invalid: %s: %s", f.Code, f.Text))
		}
	}
	if m.Valid && !m.Simulated {
		return nil, nil
	}
	return m, nil
}

// set puts the mark into a row of the fixed-length transformer.
func (m *Mark) set(row map[string]any) {
	if m != nil {
		row["weir_simulated"], row["weir_valid"], row["weir_reasons"] = m.Simulated, m.Valid, m.Reasons
	}
}
