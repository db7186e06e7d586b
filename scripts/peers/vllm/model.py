"""Writes a small Llama model without weights (vLLM makes them up with --load-format dummy).

Usage: model.py TOKENIZER_FOLDER FOLDER
"""

import json
import shutil
import sys
from pathlib import Path

source, folder = map(Path, sys.argv[1:])
folder.mkdir(parents=True, exist_ok=True)
for name in ("tokenizer.json", "tokenizer_config.json"):
    shutil.copy(source / name, folder / name)
(folder / "config.json").write_text(json.dumps({
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 151936,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "hidden_act": "silu",
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
    "eos_token_id": 151645,
    "torch_dtype": "bfloat16",
}, indent=2) + "\n")
