# Weir: the two commands of the README are `make demo` and `make test`.
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
export CGO_ENABLED = 0

.PHONY: build demo test lint bench peers clean

build: ## one static binary, bin/weir
	$(GO) build -trimpath -ldflags "-s -w -X github.com/weirbench/weir/internal/cli.version=$(VERSION)" -o bin/weir ./cmd/weir

demo: build ## the main job on a generated corpus and a simulated engine
	bin/weir demo

test: ## all tests; lists at the end what was skipped and why
	@scripts/test

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	$(GO) vet ./...

bench: ## benchmarks, with the machine named
	@grep -m1 'model name' /proc/cpuinfo; nproc; uname -sr; $(GO) version; uptime
	$(GO) test -run '^$$' -bench . -benchmem ./...

# Outside CI: TRACES is a folder of Weka traces, INFERENCEX a checkout of InferenceX, AIPERF a Python
# with aiperf or agentx-harness, TOKENIZER a tokenizer.json; what is not named is not run.
peers: build ## comparisons with other tools, real tokenizers and real engines
	@if [ -n "$(TRACES)" ]; then scripts/peers/tokens/run "$(TRACES)" 20; else echo "tokens: not run, TRACES is not set"; fi
	@if [ -n "$(INFERENCEX)" ] && [ -n "$(AIPERF)" ]; then scripts/peers/inferencex/run bin/weir "$(INFERENCEX)" "$(AIPERF)" "$(TOKENIZER)"; else echo "inferencex: not run, INFERENCEX and AIPERF are not set"; fi
	@scripts/peers/aiperf/run bin/weir
	@scripts/peers/vllm/run
	@scripts/peers/vllm/recipe
	@scripts/peers/router/run
	@scripts/peers/benchmarks/run

clean:
	rm -rf bin weir-demo weir-runs
