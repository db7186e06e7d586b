package told

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirbench/weir/internal/record"
)

// A Size is the KV pools of a deployment in unique tokens, record.Unknown where nobody told.
type Size struct{ Device, Host int64 }

// Unknown is a Size about which nothing was told.
var Unknown = Size{record.Unknown, record.Unknown}

// Pools adds up what facts from "log" or "info" tell of pools. Processes of the role "decode"
// are left out: the prefix cache is on the side that computes prefill. A replica of data
// parallelism counts once, with the least that one of its ranks told; doubts say where ranks of
// one replica told different things.
//
// SGLang's ranks of tensor parallelism print for their replica, so a log in which one rank stands
// for dp_size replicas counts that often. TensorRT-LLM prints estimates before it allocates, so
// the largest counts.
func Pools(facts []record.Fact, from string, role func(process string) string) (sum Size, doubts []string) {
	sum = Unknown
	var processes []string
	by := map[string][]record.Fact{}
	for _, f := range facts {
		if f.From != from || role != nil && role(f.Process) == "decode" {
			continue
		}
		if by[f.Process] == nil {
			processes = append(processes, f.Process)
		}
		by[f.Process] = append(by[f.Process], f)
	}
	slices.Sort(processes)
	for _, p := range processes {
		s, d := poolsOf(by[p])
		for _, x := range d {
			doubts = append(doubts, fmt.Sprintf("%s: %s", p, x))
		}
		if s.Device >= 0 {
			sum.Device = max(sum.Device, 0) + s.Device
		}
		if s.Host >= 0 {
			sum.Host = max(sum.Host, 0) + s.Host
		}
	}
	return sum, doubts
}

func poolsOf(facts []record.Fact) (Size, []string) {
	out := Unknown
	var doubts []string
	tell := func(name string) int64 {
		n, d := replicas(facts, name)
		if d != "" {
			doubts = append(doubts, d)
		}
		return n
	}
	block := one(facts, BlockTokens)
	blocks := func(name string) int64 {
		if n := tell(name); n >= 0 && block > 0 && n < maxNumber/block {
			return n * block
		}
		return record.Unknown
	}
	if out.Device = tell(DeviceTokens); out.Device < 0 {
		if block < 0 {
			block = one(facts, Arg+"block_size")
		}
		out.Device = blocks(DeviceBlocks)
	}
	if out.Host = tell(HostTokens); out.Host < 0 {
		out.Host = blocks(HostBlocks)
	}
	return out, doubts
}

var (
	dpTag  = regexp.MustCompile(`(?:^|[ _])DP(\d+)`)
	coreNo = regexp.MustCompile(`^EngineCore_(?:DP)?(\d+)$`)
)

// replica names the replica of data parallelism that a rank belongs to.
func replica(rank string) string {
	if m := dpTag.FindStringSubmatch(rank); m != nil {
		return "DP" + m[1]
	}
	if m := coreNo.FindStringSubmatch(rank); m != nil {
		return "DP" + m[1]
	}
	return ""
}

// replicas adds up a count over replicas.
func replicas(facts []record.Fact, name string) (int64, string) {
	type span struct{ least, most int64 }
	seen := map[string]span{}
	engine := ""
	var order []string
	var told []string
	for _, f := range facts {
		if f.Name != name {
			continue
		}
		n, ok := whole(f.Value)
		if !ok {
			continue
		}
		engine = f.Engine
		r := replica(f.Rank)
		s, known := seen[r]
		if !known {
			s = span{n, n}
			order = append(order, r)
		}
		seen[r] = span{min(s.least, n), max(s.most, n)}
		told = append(told, strings.TrimSpace(f.Rank+" "+f.Value))
	}
	if len(order) == 0 {
		return record.Unknown, ""
	}
	// Lines without a tag tell of some replica that has one.
	if _, bare := seen[""]; bare && len(order) > 1 {
		order = slices.DeleteFunc(order, func(r string) bool { return r == "" })
	}
	var sum int64
	doubt := ""
	for _, r := range order {
		s := seen[r]
		if engine == "trtllm" {
			sum += s.most
			continue
		}
		if s.least != s.most {
			doubt = fmt.Sprintf("ranks tell different %s: %s", name, strings.Join(told, ", "))
		}
		sum += s.least
	}
	if n := one(facts, Arg+"dp_size"); engine == "sglang" && len(order) == 1 && n > 1 && n < 1<<16 && sum < maxNumber/n {
		sum *= n
	}
	return sum, doubt
}

// one is a count that all that tell it agree on, else record.Unknown.
func one(facts []record.Fact, name string) int64 {
	out := record.Unknown
	for _, f := range facts {
		if f.Name != name {
			continue
		}
		n, err := strconv.ParseInt(f.Value, 10, 64)
		if err != nil || n < 0 || out >= 0 && n != out {
			return record.Unknown
		}
		out = n
	}
	return out
}

// VersionOf is the release that the facts agree on, empty without one.
func VersionOf(facts []record.Fact) string {
	out := ""
	for _, f := range facts {
		if f.Name == Version {
			if out != "" && f.Value != out {
				return ""
			}
			out = f.Value
		}
	}
	return out
}
