package sim

import "testing"

func TestPub(t *testing.T) {
	ps, err := PublishedPoints(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ps {
		t.Logf("%-28s %4d  %6.0f -> %6.0f %+5.0f %%   tpot %5.1f -> %5.1f %+5.0f %%  ttft %.2f", p.Series, p.Conc, p.PerGPU, p.SimPerGPU, p.PerGPUErr*100, p.TPOTNs/1e6, p.SimTPOTNs/1e6, p.TPOTErr*100, p.SimTTFTNs/1e9)
	}
}
