package facts

// A Node is what Weir knows of one host of a cluster.
type Node struct {
	Cluster string `json:"cluster" yaml:"cluster"`
	// Runners are the runner labels whose machines all belong to this cluster.
	Runners     []string `json:"runners" yaml:"runners"`
	GPU         string   `json:"gpu" yaml:"gpu"`
	GPUsPerNode int64    `json:"gpus_per_node" yaml:"gpus_per_node"`
	// DRAMBytes is the memory that a job may use of one node; the machine has more.
	DRAMBytes int64 `json:"dram_bytes" yaml:"dram_bytes"`
}

// A Reserve is device memory that is taken beside weights and KV: context, graphs,
// activations and the draft head, as far as they count against the engine's memory fraction.
type Reserve struct {
	Engine string `json:"engine" yaml:"engine"`
	Model  string `json:"model,omitempty" yaml:"model"` // empty: any
	GPU    string `json:"gpu,omitempty" yaml:"gpu"`     // empty: any
	Bytes  int64  `json:"bytes" yaml:"bytes"`           // per rank
	Source Source `json:"source" yaml:"source"`
}

// A HostProcess is host memory that one engine process takes beside its KV pools.
type HostProcess struct {
	Engine string `json:"engine" yaml:"engine"`
	Bytes  int64  `json:"bytes" yaml:"bytes"` // per rank
	Source Source `json:"source" yaml:"source"`
}

// A Fraction is the share of device memory that an engine takes for weights and KV.
type Fraction struct {
	PPM    int64  `json:"ppm" yaml:"ppm"` // parts per million
	Source Source `json:"source" yaml:"source"`
}
