package spec

// A Matrix is the list of jobs that a selection expands to.
type Matrix struct {
	rows []row
}

// Matrix expands a selection into jobs, in the order of InferenceX's generator.
func (s *Set) Matrix(sel Selection, evals Evals) (*Matrix, error) {
	rows, err := s.rows(sel)
	if err != nil {
		return nil, err
	}
	return &Matrix{rows: applyEvals(rows, evals)}, nil
}

// Len is the number of jobs.
func (m *Matrix) Len() int { return len(m.rows) }

// AppendJSON appends the jobs as InferenceX's generator prints them, without a newline.
func (m *Matrix) AppendJSON(b []byte) []byte { return appendRows(b, m.rows) }

// Points are the points of the jobs, in order. Evaluations are no points: a job that is only an
// evaluation has none. A point that several jobs hold stands once, with the origin of the first.
func (m *Matrix) Points() []*Point {
	var out []*Point
	for i := range m.rows {
		if !m.rows[i].evalOnly {
			out = append(out, m.rows[i].points()...)
		}
	}
	return once(out)
}
