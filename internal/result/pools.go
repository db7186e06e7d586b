package result

import (
	"strings"

	"github.com/weirbench/weir/internal/engine/told"
	"github.com/weirbench/weir/internal/record"
)

// poolSlack is the share by which a pool may differ from its plan without a warning: what an
// engine measures of its free memory moves by as much from one start to the next.
const poolSlack = 0.02

// pools gathers what plan, metrics, logs and info endpoints say of the KV pools. Of the engine's
// own accounts the metrics come first: they are of the pool that served.
func pools(m *record.Meta) Pools {
	pick := func(observed, planned int64) *int64 {
		if observed >= 0 {
			return &observed
		}
		return known(planned)
	}
	o, p := m.ObservedPools, m.Pools
	log, _ := told.Pools(m.Told, "log", roleOf(m))
	info, _ := told.Pools(m.Told, "info", roleOf(m))
	out := Pools{
		Planned: poolTokens(p.DeviceTokens, p.HostTokens), Metrics: poolTokens(o.DeviceTokens, o.HostTokens),
		Log: poolTokens(log.Device, log.Host), Info: poolTokens(info.Device, info.Host),
	}
	for _, from := range []struct {
		name string
		told.Size
	}{{"metrics", told.Size{Device: o.DeviceTokens, Host: o.HostTokens}}, {"log", log}, {"info", info}} {
		if from.Device >= 0 && out.DeviceTokens == nil {
			out.DeviceTokens, out.From, out.Observed = known(from.Device), from.name, true
		}
		if from.Host >= 0 && out.HostTokens == nil {
			out.HostTokens = known(from.Host)
		}
	}
	off := func(seen *int64, planned int64) *float64 {
		if seen == nil || planned <= 0 {
			return nil
		}
		return ratio(float64(*seen-planned), float64(planned))
	}
	out.DeviceOff, out.HostOff = off(out.DeviceTokens, p.DeviceTokens), off(out.HostTokens, p.HostTokens)
	if out.DeviceTokens == nil {
		if out.DeviceTokens = known(p.DeviceTokens); out.DeviceTokens != nil {
			out.From = "plan"
		}
	}
	if out.HostTokens == nil {
		out.HostTokens = known(p.HostTokens)
	}
	out.DeviceBytes, out.HostBytes = pick(o.DeviceBytes, p.DeviceBytes), pick(o.HostBytes, p.HostBytes)
	return out
}

func poolTokens(device, host int64) *PoolTokens {
	if device < 0 && host < 0 {
		return nil
	}
	return &PoolTokens{known(device), known(host)}
}

// roleOf tells the role of a process by its name, "" where it is not known.
func roleOf(m *record.Meta) func(string) string {
	of := map[string]string{}
	for _, p := range m.Processes {
		of[p.Name] = p.Role
	}
	return func(name string) string { return of[name] }
}

// doubt warns where accounts of the pools differ.
func (p *Pools) doubt(m *record.Meta, note func(Code, string, ...any)) {
	for _, x := range []struct {
		name string
		off  *float64
		seen *int64
		plan int64
	}{{"device", p.DeviceOff, p.DeviceTokens, m.Pools.DeviceTokens}, {"host", p.HostOff, p.HostTokens, m.Pools.HostTokens}} {
		if x.off != nil && (*x.off > poolSlack || *x.off < -poolSlack) {
			note(PoolMismatch, "the engine's %s pool has %d tokens, the plan %d: %+.2f %%", x.name, *x.seen, x.plan, 100**x.off)
		}
	}
	if p.Log != nil && p.Metrics != nil {
		if l, s := p.Log.DeviceTokens, p.Metrics.DeviceTokens; l != nil && s != nil && *l != *s {
			note(PoolMismatch, "the engine's log tells of %d tokens in the device pool, its metrics of %d", *l, *s)
		}
	}
	_, doubts := told.Pools(m.Told, "log", roleOf(m))
	if len(doubts) > 0 {
		note(PoolMismatch, "%s; the least counts", strings.Join(doubts, "; "))
	}
}
