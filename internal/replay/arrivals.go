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
	at    float64 // seconds since the start: summed before it is rounded, so that nothing drifts
}

// next is the time of the next arrival in nanoseconds since the start. The first comes one
// interval after it.
func (v *intervals) next() int64 {
	switch v.kind {
	case Poisson:
		v.at += -ln(1-v.rng.float64()) / v.rate
	case Gamma:
		v.at += v.gamma() / float64(v.shape*v.rate)
	default:
		v.at += 1 / v.rate
	}
	return int64(math.Round(min(v.at, 9e9) * 1e9))
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

// around is a whole number near a mean: normal with a deviation, drawn again while it is negative,
// rounded up, at least 1. Without a deviation it is the mean.
func (v *intervals) around(mean, dev float64) int64 {
	if dev <= 0 {
		return max(1, int64(math.RoundToEven(mean)))
	}
	for {
		if x := mean + float64(dev*v.normal()); x >= 0 {
			return max(1, int64(math.Ceil(x)))
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
