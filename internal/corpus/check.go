package corpus

import "fmt"

// check refuses a trace that breaks the promises of the types: every reader that builds
// streams on its own calls it, and so does what reads compiled files.
func (t *Trace) check() error {
	switch {
	case t.ID == "":
		return fmt.Errorf("a trace has no id")
	case t.BlockSize <= 0:
		return fmt.Errorf("trace %q: block size %d", t.ID, t.BlockSize)
	case len(t.Streams) == 0:
		return fmt.Errorf("trace %q has no streams", t.ID)
	}
	ids := map[string]int{}
	for i := range t.Streams {
		s := &t.Streams[i]
		bad := func(format string, a ...any) error {
			return fmt.Errorf("trace %q, stream %d %q: %s", t.ID, i, s.ID, fmt.Sprintf(format, a...))
		}
		if other, ok := ids[s.ID]; ok {
			return bad("the id is also that of stream %d", other)
		}
		ids[s.ID] = i
		switch {
		case len(s.Turns) == 0:
			return bad("no turns")
		case s.SystemTokens < 0:
			return bad("%d system tokens", s.SystemTokens)
		case i == 0:
			if s.Kind != Root || s.Parent != Unbound || s.Depth != 0 || s.Join != Unbound {
				return bad("the first stream must be a root without a parent")
			}
		case s.Kind == Root || int(s.Kind) >= len(kindNames):
			return bad("%s is no kind of a child", s.Kind)
		case s.Parent < 0 || s.Parent >= i:
			return bad("parent %d does not come before it", s.Parent)
		case s.Depth != t.Streams[s.Parent].Depth+1:
			return bad("depth %d under a parent of depth %d", s.Depth, t.Streams[s.Parent].Depth)
		case s.Spawn < 0 || s.Spawn >= len(t.Streams[s.Parent].Turns):
			return bad("spawned by turn %d of %d", s.Spawn, len(t.Streams[s.Parent].Turns))
		case s.Join != Unbound && (s.Join <= s.Spawn || s.Join >= len(t.Streams[s.Parent].Turns)):
			return bad("spawned by turn %d and joined by turn %d of %d", s.Spawn, s.Join, len(t.Streams[s.Parent].Turns))
		}
		last := int64(0)
		for k := range s.Turns {
			u := &s.Turns[k]
			switch {
			case u.In <= 0 || u.Out < 0 || u.In > maxTokens || u.Out > maxTokens:
				return bad("turn %d: %d tokens in, %d out", k, u.In, u.Out)
			case u.StartNs < last:
				return bad("turn %d starts at %s s, before the turn before it at %s s", k, seconds(u.StartNs), seconds(last))
			case u.APINs < 0 || u.ThinkNs < 0 || u.TTFTNs < 0:
				return bad("turn %d: a negative duration", k)
			case u.Model < 0 || u.Model >= len(t.Models):
				return bad("turn %d: model %d of %d", k, u.Model, len(t.Models))
			case int64(len(u.Blocks)) > (u.In+t.BlockSize-1)/t.BlockSize:
				return bad("turn %d: %d blocks for %d tokens", k, len(u.Blocks), u.In)
			}
			last = u.StartNs
		}
	}
	return nil
}
