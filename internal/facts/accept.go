package facts

// An Acceptance is the measured number of tokens that one step of speculative decoding yields,
// the bonus token included, by the number of drafted tokens.
type Acceptance struct {
	Model    string `json:"model" yaml:"model"`       // Model.Name
	Method   string `json:"method" yaml:"method"`     // spec-decoding of master files: "mtp", "eagle3", ...
	Thinking bool   `json:"thinking" yaml:"thinking"` // measured with thinking on
	// LengthsMilli are thousandths of tokens for 1, 2, 3, ... drafted tokens.
	LengthsMilli []int64 `json:"lengths_milli" yaml:"lengths_milli"`
	Source       Source  `json:"source" yaml:"source"`
}

// AcceptedPPM is the accepted length of a model with thinking on for a number of drafted
// tokens, in parts per million of a token; ok is false where nobody measured it.
func (s *Set) AcceptedPPM(model, method string, draft int64) (ppm int64, ok bool) {
	for _, a := range s.Acceptances {
		if a.Model == model && a.Method == method && a.Thinking && draft >= 1 && draft <= int64(len(a.LengthsMilli)) {
			return 1000 * a.LengthsMilli[draft-1], true
		}
	}
	return 0, false
}
