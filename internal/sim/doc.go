// Package sim is an engine without a GPU: a scheduler, cache tiers and a model of how long a step
// takes, as SGLang and vLLM have them, over block identities instead of tokens.
//
// A Core is one engine and moves only when it is told to; a Cluster puts several behind a router,
// also split into prefill and decode. Engine makes either a replay.VirtualTarget, so that a whole
// run passes in virtual time; sim/simhttp drives the same core by the clock of the machine behind
// HTTP. Nothing here draws a random number or reads a clock: equal calls give equal results, to
// the nanosecond, on every machine.
//
// What comes out is simulated and is called so everywhere. What the step times were fitted to,
// and how far off they are, stands in Coefficients.Fit and in docs/simulator.md.
package sim
