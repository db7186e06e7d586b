package run

import (
	"testing"

	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/sim"
	"github.com/weirbench/weir/internal/sim/simhttp"
	"github.com/weirbench/weir/internal/spec"
)

// simServer serves a simulated engine until the test ends and returns its base URL.
func simServer(t *testing.T, o simhttp.Options) string {
	t.Helper()
	srv, err := simhttp.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return material.Serve(t, srv)
}

// poolsServer is the simulated engine of GLM-5.2 on eight B200 with pools of the given tokens.
func poolsServer(t *testing.T, engine string, speed float64, device, host int64) string {
	t.Helper()
	set := facts.Embedded()
	model, err := set.ModelByName("glm-5.2")
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := set.GPUByName("b200")
	if err != nil {
		t.Fatal(err)
	}
	return simServer(t, simhttp.Options{Engine: engine, Model: "m", Speed: speed, Config: sim.Config{
		Model: model, GPU: gpu, Parallel: spec.Parallel{TP: 8, PP: 1, EP: 1, DCP: 1, PCP: 1}, DeviceTokens: device, HostTokens: host, WritePolicy: "write_back",
		WeightPrecision: "fp4", KVDType: "fp8", KVBytesPerToken: 55_800, ContextLen: 1 << 20, ModelName: "m",
	}})
}
