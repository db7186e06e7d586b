package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRefusedFlags gives every command that starts something a value outside its range, or a
// flag that has no effect beside the others: each ends with 2 and names the flag and what is
// allowed, and nothing is written.
func TestRefusedFlags(t *testing.T) {
	dir := t.TempDir()
	traces := filepath.Join(dir, "traces")
	if code, _, errOut := weir("corpus", "generate", "--traces", "4", "-o", traces); code != exitOK {
		t.Fatal(errOut)
	}
	out := filepath.Join(dir, "out")
	example := "../../examples/quickstart/"
	point := " -f " + example + "master.yaml -r " + example + "runners.yaml --corpus " + traces + " -o " + out
	server := " --url http://127.0.0.1:1 --model m -o " + out
	commands := map[string]string{
		"sweep": "sweep" + point, "point": "point" + point, "demo": "demo -o " + out,
		"load":   "load -c 1" + server,
		"replay": "replay --duration 1m --corpus " + traces + server,
		"serve":  "sim serve --addr 127.0.0.1:0", "run": "sim run -c 1 --duration 10s --corpus " + traces,
		"knee": "knee -c 1 --corpus " + traces,
	}
	for _, c := range []struct{ on, flags, want string }{
		{"sweep point demo load replay", "--duration -5m", "at least 0s"},
		{"sweep demo", "--seed -5", "at least -1"},
		{"sweep demo", "-j -4", "from 0 to 10000"},
		{"sweep", "--poll -3s", "at least 1ms"},
		{"sweep", "--poll 1s", "without --fleet"},
		{"sweep", "--gpu-hours -4 --adaptive", "from 0 to"},
		{"sweep", "--unclean restart", "without --share-server"},
		{"sweep", "--adaptive -j 4", "with --adaptive"},
		{"sweep", "--renew-images", "without --fleet"},
		{"sweep", "--no-control", "without --adaptive"},
		{"sweep", "--slurm-submit-only", "without --fleet"},
		{"sweep point demo", "--recipes nodir", "no such folder"},
		{"sweep point", "--recipes " + example + "master.yaml", "that is a file"},
		{"sweep demo", "--conc 2,999", "no point of the selection has this concurrency; they have 1, 2, 4"},
		{"point", "--conc 999", "no point of the selection has this concurrency"},
		{"point", "--conc 0", "from 1 to 100000"},
		{"sweep point demo replay", "--max-output -5", "at least 0"},
		{"sweep point demo replay run knee", "--warmup-requests-per-lane -3", "from 0 to"},
		{"replay", "--gap-cap -1s", "at least 0s"},
		{"replay load", "--gpus -1", "from 0 to"},
		{"replay load", "-c -1", "to 100000"},
		{"load", "--ramp -1s", "at least 0s"},
		{"load", "--osl 0", "at least 1"},
		{"serve run", "--prefetch-policy zz", "timeout, best_effort, wait_complete"},
		{"serve run", "--prefetch-policy timeout", "without --storage-tokens"},
		{"serve run", "--ep 5", "divides --tp 8"},
		{"serve run", "--page-size 0", "from 1 to"},
		{"serve run", "--tp 0", "from 1 to"},
		{"serve run", "--write-policy write_back", "without a host pool"},
		{"serve run", "--storage-tokens 1000000", "without a host pool"},
		{"serve run", "--host-ratio 2 --keep-doubles", "without --write-policy write_back"},
		{"serve run", "--balance session", "without --dp-attn"},
		{"serve run", "--accept-length 2", "without --draft-tokens"},
		{"serve run", "--device-tokens 1000000 --mem-fraction 0.5", "beside --device-tokens"},
		{"serve", "--ttft -5ms", "at least 0s"},
		{"serve", "--ttft 5ms", "belong together"},
		{"serve", "--ttft 5ms --itl 1ms --gpu b300", "take the place of the simulation"},
		{"serve", "--bootstrap-port 99999999 --role prefill", "from 0 to 65535"},
		{"serve", "--bootstrap-port 8998", "without --role prefill"},
		{"serve", "--engine vllm --host-ratio 2 --write-policy write_back", "SGLang's"},
		{"serve", "--engine vllm --schedule-policy lpm", "SGLang's"},
		{"serve", "--engine zz", "sglang, vllm"},
		{"run", "--compare", "without a host pool"},
		{"run", "--duration -1s", "at least 1s"},
		{"knee", "--facts nofile", "without -f"},
		{"knee", "--as-recipe", "without -f"},
		{"knee", "--device-pool-gib 20", "without -f"},
		{"knee", "--exact", "without a pool"},
		{"knee", "--exclusive", "without --host-pool"},
		{"knee", "--working-set --capacity 5", "beside --working-set"},
	} {
		for _, on := range strings.Fields(c.on) {
			code, printed, errOut := weir(append(strings.Fields(commands[on]), strings.Fields(c.flags)...)...)
			name, _, _ := strings.Cut(strings.TrimLeft(c.flags, "-"), " ")
			if code != exitUsage || printed != "" || !strings.Contains(errOut, c.want) {
				t.Errorf("%s %s: exit %d, want %q of --%s\n%s%s", on, c.flags, code, c.want, name, printed, errOut)
			}
			if _, err := os.Stat(out); err == nil && on != "demo" { // which keeps its configuration there
				t.Fatalf("%s %s wrote %s", on, c.flags, out)
			}
			os.RemoveAll(out)
		}
	}
}
