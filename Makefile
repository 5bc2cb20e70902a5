# Every target is one command, shown by `make` alone. `build` and `test` need
# only Go; the others install what they need under .cache/.

.DEFAULT_GOAL := help
.PHONY: help build test race fuzz check interop conformance proxies bench liveness chaos soak

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/holdfast
	go build -o bin/holdfast ./cmd/holdfast

test: ## hermetic: no network, no node, no python
	go test ./...

race: ## the same under the race detector
	go test -race ./...

fuzz: ## every fuzz target for six seconds (FUZZTIME=1m for longer)
	.ci/run fuzz

check: ## test, builds for Linux, macOS and Windows, gofmt, vet, fix, staticcheck, nested modules
	.ci/run test cross fmt vet fix static modules

interop: ## real clients and real servers; makes docs/interop.md
	interop/run

conformance: ## the official suite; makes docs/conformance.md
	conformance/run

proxies: ## real proxies with short limits; makes docs/paths.md
	proxies/run

chaos: ## 10,000 calls through a link that fails (CALLS=1000 SEED=7 for another run)
	CALLS=$${CALLS:-10000} .ci/run chaos

soak: ## connect for 30 minutes, ten times as fast: cuts, redeployments, 2,000 calls (SEED=7 SCALE=1 for another run)
	LENGTH=$${LENGTH:-30m} .ci/run soak

bench: ## load beside the least possible gateway; makes docs/performance.md
	bench/run

liveness: ## verdicts on real children; makes docs/liveness.md
	liveness/run
