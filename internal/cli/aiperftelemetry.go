package cli

import (
	"strings"

	"github.com/weirbench/weir/internal/run"
	"github.com/weirbench/weir/internal/scrape"
)

// localTools are the commands that read the GPUs of this machine, by AIPerf's names.
var localTools = map[string]string{"pynvml": "nvidia-smi", "amdsmi": "amd-smi"}

// telemetry reads --gpu-telemetry: URLs of exporters are scraped with the servers' metrics, and
// AIPerf's local collectors are the vendors' commands. What concerns the screen or what AIPerf keeps of
// an exporter is noted. Without the flag no GPUs are read.
func (p *profile) telemetry() {
	items := p.args.values["--gpu-telemetry"]
	if len(items) > 0 && p.has("--no-gpu-telemetry") {
		p.fail("--gpu-telemetry beside --no-gpu-telemetry: leave one of them out")
		return
	}
	g := run.GPUs{Tool: "none"}
	var urls []string
	for _, item := range items {
		name := strings.ToLower(item)
		tool := localTools[name]
		switch {
		case tool != "" && g.Tool != "none" && g.Tool != tool:
			p.fail("--gpu-telemetry %s: %s reads them already", item, g.Tool)
		case tool != "":
			g.Tool = tool
		case name == "dashboard":
			p.args.notes = append(p.args.notes, "--gpu-telemetry dashboard has no effect: it concerns the screen")
		case strings.HasSuffix(name, ".csv"):
			p.args.notes = append(p.args.notes, "--gpu-telemetry "+item+" has no effect: the bundle has all that an exporter says")
		case strings.Contains(item, ":"):
			if _, err := scrape.Endpoint(item); err != nil {
				p.fail("--gpu-telemetry: %v", err)
				continue
			}
			urls = append(urls, item)
		default:
			p.fail("--gpu-telemetry %q: need the URL of an exporter, pynvml, amdsmi, dashboard or a .csv file", item)
		}
	}
	if g.Tool != "none" {
		p.gpus = &g
	}
	if len(urls) > 0 && p.metrics == nil {
		p.metrics = &scrape.Options{Every: scrape.DefaultEvery, TLS: p.client.TLS}
	}
	if len(urls) > 0 {
		p.metrics.URLs = append(p.metrics.URLs, urls...)
	}
}
