package replay

import "math"

// Arrival says how the first turns of conversations are spread over time.
type Arrival uint8

const (
	Closed   Arrival = iota // a new one as soon as one has ended
	Constant                // at a rate, evenly
	Poisson                 // at a rate, exponential intervals
	Gamma                   // at a rate, gamma intervals of a shape: below 1 bursty, above 1 even
	Schedule                // at their recorded times
	Users                   // users that take turns at a fixed pace
)

var arrivalNames = []string{"closed", "constant", "poisson", "gamma", "schedule", "users"}

// MarshalText writes closed, constant, poisson, gamma, schedule or users.
func (a Arrival) MarshalText() ([]byte, error) { return nameOf(arrivalNames, int(a)) }

// UnmarshalText reads what MarshalText writes.
func (a *Arrival) UnmarshalText(text []byte) error {
	i, err := indexOf("arrival", arrivalNames, text)
	*a = Arrival(i)
	return err
}

// intervals draws the times between arrivals at a rate per second.
type intervals struct {
	kind  Arrival
	rate  float64
	shape float64
	rng   *pcg64
	py    *pyRandom // draws as AIPerf does; nil for rng
	at    float64   // seconds since the start: summed before it is rounded, so that nothing drifts

	ramp   float64 // seconds until the rate is full; 0 for none
	full   float64 // that rate
	series []RatePoint
	step   int     // of the ramp, or after it of the series; 0 before the first arrival
	change float64 // when the next step is; 0 for none
	from   float64 // when the series begins
}

// RatePoint is a rate at a time of a series, which goes from one to the next in a straight line.
type RatePoint struct {
	AtS  float64 `json:"time_s"` // seconds since the series began, 0 or more
	Rate float64 `json:"qps"`    // per second, above 0
}

func newIntervals(o *Load) intervals {
	v := intervals{kind: o.Arrival, rate: o.Rate, shape: o.Shape, rng: newPCG64(laneSeed(o.Seed, "arrivals", 0)), ramp: float64(o.RateRampNs) / 1e9, full: o.Rate, series: o.RateSeries}
	if len(v.series) > 0 {
		v.rate = v.series[0].Rate
		v.full = v.rate
	}
	if o.AsAIPerf {
		purpose := "timing.request.poisson_interval"
		if o.Arrival == Gamma {
			purpose = "timing.request.gamma_interval"
		}
		v.py = aiperfRandom(o.Seed, purpose)
	}
	return v
}

// rateStep is how often a ramp or a series changes the rate, seconds (AIPERF_TIMING_RATE_RAMP_UPDATE_INTERVAL of 0.13, 2026-10).
const rateStep = 0.1

// next is the time of the next arrival in nanoseconds since the start. The first comes one
// interval after it. Each change of the rate draws an interval at the new one, and the arrival that is
// awaited comes at the end of it if that is sooner, as with AIPerf.
func (v *intervals) next() int64 {
	switch {
	case v.step > 0 || v.ramp == 0 && len(v.series) == 0:
		v.at += v.draw()
	case v.ramp > 0:
		v.step, v.change, v.rate = 1, rateStep, v.full*rateStep/v.ramp
		v.at = min(v.draw(), v.draw())
	default:
		v.step, v.change = 1, rateStep
		v.at = v.draw()
	}
	for v.change > 0 && v.change <= v.at {
		now := v.change
		if rate := v.stepped(now); rate != v.rate {
			v.rate = rate
			v.at = min(v.at, now+v.draw())
		}
	}
	return int64(math.Round(min(v.at, 9e9) * 1e9))
}

// stepped is the rate from a step on, and sets when the next one is.
func (v *intervals) stepped(now float64) float64 {
	v.step++
	switch {
	case v.ramp > 0 && now < v.ramp:
		v.change = float64(v.step) * rateStep
		low := v.full * rateStep / v.ramp
		return low + float64((v.full-low)*now/v.ramp)
	case v.ramp > 0:
		v.from, v.ramp, v.step, v.change = v.ramp, 0, 1, 0
		if len(v.series) > 0 {
			v.change = v.from + rateStep
		}
		return v.full
	}
	at, i := now-v.from, 0
	for i < len(v.series) && v.series[i].AtS <= at {
		i++
	}
	switch {
	case i == len(v.series):
		v.change = 0
		return v.series[i-1].Rate
	case i == 0:
		v.change = v.from + float64(v.step)*rateStep
		return v.series[0].Rate
	}
	v.change = v.from + float64(v.step)*rateStep
	a, b := v.series[i-1], v.series[i]
	return a.Rate + float64((b.Rate-a.Rate)*(at-a.AtS)/(b.AtS-a.AtS))
}

// draw is one interval at the rate, seconds.
func (v *intervals) draw() float64 {
	switch v.kind {
	case Poisson:
		if v.py != nil {
			return v.py.exp() / v.rate
		}
		return -ln(1-v.rng.float64()) / v.rate
	case Gamma:
		if v.py != nil {
			return v.py.gamma(v.shape) / float64(v.shape*v.rate)
		}
		return v.gamma() / float64(v.shape*v.rate)
	}
	return 1 / v.rate
}

// gamma draws from the gamma distribution of the shape with scale 1 (Marsaglia and Tsang, A
// Simple Method for Generating Gamma Variables, 2000).
func (v *intervals) gamma() float64 {
	k, boost := v.shape, 1.0
	if k < 1 {
		boost = exp(ln(1-v.rng.float64()) / k)
		k++
	}
	d := k - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := v.normal()
		t := 1 + float64(c*x)
		if t <= 0 {
			continue
		}
		w := float64(float64(t*t) * t)
		if ln(1-v.rng.float64()) < float64(0.5*float64(x*x))+d-float64(d*w)+float64(d*ln(w)) {
			return float64(float64(d*w) * boost)
		}
	}
}

// normal is standard normal, by the polar method.
func (v *intervals) normal() float64 {
	for {
		x, y := float64(2*v.rng.float64())-1, float64(2*v.rng.float64())-1
		if s := float64(x*x) + float64(y*y); s > 0 && s < 1 {
			return float64(x * math.Sqrt(-2*ln(s)/s))
		}
	}
}

// ln and exp are made of exact operations only. Those of package math are in assembly on some
// machines and fused on others, and differ in the last bit; equal seeds must give equal times.

// ln is the natural logarithm of a positive number, to about 1e-16.
func ln(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	s := (m - 1) / (m + 1) // |s| <= 0.172: 12 terms of 2 artanh(s)
	s2, sum := float64(s*s), 0.0
	for k := 23; k >= 1; k -= 2 {
		sum = float64(sum*s2) + 1/float64(k)
	}
	return float64(2*float64(s*sum)) + float64(float64(e)*math.Ln2)
}

// exp is the exponential of a number that is not positive; below -700 it is 0.
func exp(x float64) float64 {
	if x < -700 {
		return 0
	}
	n := math.Round(x / math.Ln2)
	r := x - float64(n*math.Ln2) // |r| <= 0.35
	sum := 1.0
	for k := 18; k >= 1; k-- {
		sum = 1 + float64(sum*r)/float64(k)
	}
	return math.Ldexp(sum, int(n))
}
