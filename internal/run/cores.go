package run

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Cores say which CPUs of a node are the client's alone, as lists such as "0-3,8".
type Cores struct {
	Client  string
	Engines string
	Node    int // index of the node that both share
}

// on are the CPUs that processes on a node get; "" is all.
func (c *Cores) on(node int) string {
	if c == nil || c.Node != node {
		return ""
	}
	return c.Engines
}

// pin is a command that runs on those CPUs alone.
func (c *Cores) pin(node int, argv []string) []string {
	if list := c.on(node); list != "" {
		return append([]string{"taskset", "--cpu-list", list}, argv...)
	}
	return argv
}

// pinned is the split that this process made, once: a second one would split the first.
var pinned struct {
	sync.Mutex
	n     int
	cores *Cores
}

// OwnCores keeps this process, all of its threads, on n CPUs or some more, so that no other process
// shares a core with it, and says which are left. It fails where nothing would be left, and when
// it split the CPUs before in another way.
func OwnCores(n int) (*Cores, error) {
	pinned.Lock()
	defer pinned.Unlock()
	if pinned.cores != nil && pinned.n == n {
		c := *pinned.cores
		return &c, nil
	}
	if pinned.cores != nil {
		return nil, fmt.Errorf("the client has %d CPUs of its own already and cannot have %d: give the clusters of one machine the same client-cpus", pinned.n, n)
	}
	if _, err := exec.LookPath("taskset"); err != nil {
		return nil, fmt.Errorf("client-cpus: engines are kept off the client's CPUs by taskset (util-linux): %w", err)
	}
	allowed, err := affinity()
	if err != nil {
		return nil, fmt.Errorf("client-cpus: %w", err)
	}
	client, engines := split(allowed, siblings, n)
	if len(engines) == 0 || len(client) < n {
		return nil, fmt.Errorf("client-cpus: %d of the %d CPUs here (%s) would leave none to the engines; name fewer", n, len(allowed), cpuList(allowed))
	}
	if err := setAffinity(client); err != nil {
		return nil, fmt.Errorf("client-cpus: %w", err)
	}
	pinned.n, pinned.cores = n, &Cores{Client: cpuList(client), Engines: cpuList(engines)}
	c := *pinned.cores
	return &c, nil
}

// split takes whole cores from the end until the client has n CPUs; engines have the rest.
func split(allowed []int, siblings func(int) []int, n int) (client, engines []int) {
	for i := len(allowed) - 1; i >= 0 && len(client) < n; i-- {
		for _, s := range siblings(allowed[i]) {
			if slices.Contains(allowed, s) && !slices.Contains(client, s) {
				client = append(client, s)
			}
		}
	}
	slices.Sort(client)
	for _, c := range allowed {
		if !slices.Contains(client, c) {
			engines = append(engines, c)
		}
	}
	return client, engines
}

// siblings are the CPUs that share a CPU's core, itself included.
func siblings(cpu int) []int {
	raw, err := os.ReadFile(filepath.Join("/sys/devices/system/cpu", "cpu"+strconv.Itoa(cpu), "topology", "thread_siblings_list"))
	if err != nil {
		return []int{cpu}
	}
	out, err := parseCPUs(strings.TrimSpace(string(raw)))
	if err != nil || !slices.Contains(out, cpu) {
		return []int{cpu}
	}
	return out
}

// parseCPUs reads a list of CPUs such as "0-3,8".
func parseCPUs(s string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(lo)
		b := a
		if isRange && err == nil {
			b, err = strconv.Atoi(hi)
		}
		if err != nil || a < 0 || b < a || b > 1<<16 {
			return nil, errors.New("not a list of CPUs: " + strconv.Quote(s))
		}
		for ; a <= b; a++ {
			out = append(out, a)
		}
	}
	return out, nil
}

// cpuList writes sorted CPUs as a list.
func cpuList(cpus []int) string {
	var parts []string
	for i := 0; i < len(cpus); {
		k := i
		for k+1 < len(cpus) && cpus[k+1] == cpus[k]+1 {
			k++
		}
		part := strconv.Itoa(cpus[i])
		if k > i {
			part += "-" + strconv.Itoa(cpus[k])
		}
		parts, i = append(parts, part), k+1
	}
	return strings.Join(parts, ",")
}
