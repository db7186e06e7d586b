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
}

// Stats returns the counts of every rank.
func (g *Core) Stats() []Stats {
	out := make([]Stats, len(g.ranks))
	for i, r := range g.ranks {
		out[i] = r.stats()
		out[i].Steps, out[i].PrefillNs, out[i].DecodeNs = g.count.Steps, g.count.PrefillNs, g.count.DecodeNs
	}
	return out
}
