"""Starts sglang-router with every policy that its library knows.

The command line of sglang-router 0.3.2 refuses consistent_hashing and prefix_hash, which its library
has (sglang_router/router.py and router_args.py). Arguments are those of sglang_router.launch_router.
"""

import argparse

from sglang_router.launch_router import main
from sglang_router.router import policy_from_str

add = argparse._ActionsContainer.add_argument


def add_argument(self, *names, **options):
    if names[0] in ("--policy", "--prefill-policy", "--decode-policy"):
        known = options.pop("choices")
        options["type"] = lambda p: p if policy_from_str(p) is not None else p
        options["metavar"] = "POLICY"
        options["help"] = f"{options['help']} ({', '.join(known)}, consistent_hashing, prefix_hash)"
    return add(self, *names, **options)


argparse._ActionsContainer.add_argument = add_argument
main()
