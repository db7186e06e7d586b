package run

import (
	"github.com/weirbench/weir/internal/knee"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/record"
)

// meter follows what the job sends, to say afterwards what a plain LRU would have found.
func (j *Job) meter() *knee.Meter {
	salt := j.Replay.Salt
	if j.Load != nil {
		salt = prompt.NoSalt
	}
	return knee.NewMeter(j.Corpus, salt)
}

// lru states the hit rates of a plain LRU of the planned pools over the schedule that was sent.
func (j *Job) lru(m *record.Meta, meter *knee.Meter) {
	c, ok := meter.Curve()
	if !ok {
		return
	}
	if m.Pools.DeviceTokens > 0 {
		if x, ok := c.HitRate(m.Pools.DeviceTokens); ok {
			m.LRUDevice = &x
		}
	}
	if m.Pools.HostTokens > 0 && j.Verdict != nil {
		if x, ok := c.HitRate(j.Verdict.UniqueTokens); ok {
			m.LRUHost = &x
		}
	}
}
