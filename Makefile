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

peers: build ## comparisons with other tools, real tokenizers and real engines; PEERS="tokens vllm" runs some of them
	@scripts/peers/run $(PEERS)

clean:
	rm -rf bin weir-demo weir-runs
