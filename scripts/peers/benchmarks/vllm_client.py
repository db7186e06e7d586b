"""Runs vLLM's benchmark client: its command looks for a package named vllm, its module does not."""

import argparse

from vllm.benchmarks.serve import add_cli_args, main

parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
