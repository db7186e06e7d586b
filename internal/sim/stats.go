package sim

// Stats are what one rank counts; tokens and nanoseconds of engine time, since the start where
// they count and as of now where they do not.
type Stats struct {
	Running, Waiting int64 // requests now
	// Device and host pool: size, in use by requests, evictable (cached, unlocked) and host
	// tokens in use, all now.
	DeviceTokens, DeviceUsed, DeviceEvictable int64
	HostTokens, HostUsed                      int64

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

func (s *scheduler) stats() Stats {
	n := s.count
	n.Running, n.Waiting = int64(len(s.running)), int64(len(s.waiting))
	if s.chunked != nil {
		n.Running++
	}
	c := s.cache
	n.DeviceTokens, n.DeviceUsed, n.DeviceEvictable = c.capacity, c.inUse(), c.evictable
	n.HostTokens, n.HostUsed = c.hostCap, c.hostCap-c.hostFree
	n.Retracted = s.retracted
	n.Evicted, n.LoadedBack, n.BackedUp, n.Dropped = c.stats.evicted, c.stats.loadedBack, c.stats.backedUp, c.stats.dropped
	return n
}

// Stats returns the counts of every rank.
func (g *Core) Stats() []Stats {
	out := make([]Stats, len(g.ranks))
	for i, r := range g.ranks {
		out[i] = r.stats()
	}
	return out
}
