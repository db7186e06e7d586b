package sim

// Stats are what one rank counts; tokens and nanoseconds of engine time, since the start where
// they count and as of now where they do not.
type Stats struct {
	Running, Waiting int64 // requests now
	// Device and host pool: size, in use by requests, evictable (cached, unlocked) and host
	// tokens in use, all now.
	DeviceTokens, DeviceUsed, DeviceEvictable int64
	HostTokens, HostUsed                      int64

	// Requests of a disaggregated engine, now: at prefill those that wait for room at decode
	// and those whose KV is on its way; at decode those without room and those without KV.
	Bootstrap, Inflight, Prealloc, Transfer int64

	Requests, Failed, Retracted int64 // that ended, that ended without success, retractions
	PromptTokens                int64 // of requests that ended
	CachedDevice, CachedHost    int64 // of those, found in a tier
	CachedStorage               int64
	OutputTokens                int64 // generated
	Generated                   int64 // output tokens so far, of requests that still run too
	PrefillTokens               int64 // computed
	// Queried are the prompt tokens of requests when they were first scheduled; of those,
	// QueryHits were found in any tier and QueryHost on the host.
	Queried, QueryHits, QueryHost int64
	Evicted, LoadedBack           int64 // off the device, from the host to the device
	BackedUp, Dropped             int64 // to the host, lost for want of room there
	PrefillNs, DecodeNs           int64 // time in steps
	Steps                         int64
	LastHitPPM                    int64 // hits over prompt tokens of the last prefill step

	Role      string    // RolePrefill or RoleDecode, empty otherwise
	Transfers Transfers // of a prefill engine
	// BootstrapFailed are requests that the other side gave no room in time, TransferFailed those
	// whose KV did not come.
	BootstrapFailed, TransferFailed int64
}

// Transfers are requests whose KV a prefill engine has sent, counted as SGLang does: the time from
// the end of the computation until the last piece had arrived, and all bytes of the prompt.
type Transfers struct {
	N, Ns, Bytes int64
	Speed        float64 // sum over them, GiB per second
	// Below TransferMs, TransferMB and TransferGBs: observations by bucket, the last one open.
	ByMs  [13]int64
	ByMB  [10]int64
	ByGBs [11]int64
}

// SGLang's buckets of transfers (observability/metrics_collector.py, 2026-07): milliseconds, MiB and
// GiB per second.
var (
	TransferMs  = []float64{1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000}
	TransferMB  = []float64{1, 5, 10, 50, 100, 500, 1000, 5000, 10000}
	TransferGBs = []float64{.1, .5, 1, 5, 10, 25, 50, 100, 200, 400}
)

func (t *Transfers) add(ns, bytes int64) {
	if ns <= 0 {
		return
	}
	t.N++
	t.Ns += ns
	t.Bytes += bytes
	mb := float64(bytes) / (1 << 20)
	speed := mb / 1024 / (float64(ns) / 1e9)
	t.Speed += speed
	t.ByMs[bucketOf(TransferMs, float64(ns)/1e6)]++
	t.ByMB[bucketOf(TransferMB, mb)]++
	t.ByGBs[bucketOf(TransferGBs, speed)]++
}

// bucketOf is the first bucket whose bound is not below v.
func bucketOf(bounds []float64, v float64) int {
	i := 0
	for i < len(bounds) && v > bounds[i] {
		i++
	}
	return i
}

// Stats returns the counts of every rank.
func (g *Core) Stats() []Stats {
	out := make([]Stats, len(g.ranks))
	for i, r := range g.ranks {
		out[i] = r.stats()
		out[i].Role = g.c.Role
		out[i].Steps, out[i].PrefillNs, out[i].DecodeNs = g.count.Steps, g.count.PrefillNs, g.count.DecodeNs
	}
	return out
}
