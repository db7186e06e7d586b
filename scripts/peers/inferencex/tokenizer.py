"""Makes a tokenizer that counts as the simulated server does, so that AIPerf needs no network and
both count the same prompts: a word with its leading space is one token, digits go in threes, a
run of line breaks is one token, any other sign is one.

Usage: tokenizer.py FOLDER, with a python that has aiperf, tokenizers and transformers.
"""

import re
import string
import sys
from pathlib import Path

import aiperf
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

texts = [f.read_text(errors="ignore") for f in Path(aiperf.__file__).parent.glob("dataset/generator/**/*.txt")]
texts += [f.read_text() for f in Path(aiperf.__file__).parent.glob("dataset/generator/*.py")]
words = sorted(set(re.findall("[A-Za-z]+", " ".join(texts))))
signs = list(string.printable) + [f"{i:0{w}d}" for w in (1, 2, 3) for i in range(10**w)]
runs = ["\n" * i for i in range(1, 9)] + [" " * i for i in range(1, 60)]

t = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
t.pre_tokenizer = pre_tokenizers.Split(
    Regex(r" ?\p{L}[\p{L}\p{M}]*|[0-9]{1,3}|[\r\n]+|[ \t]+(?= \p{L})|[ \t]+|[\s\S]"), "isolated"
)
t.decoder = decoders.Fuse()
t.train_from_iterator(
    texts + [" " + w for w in words] + words + signs + runs,
    trainers.WordLevelTrainer(special_tokens=["<unk>", "<|endoftext|>"], vocab_size=200_000, min_frequency=1),
)
PreTrainedTokenizerFast(
    tokenizer_object=t, unk_token="<unk>", eos_token="<|endoftext|>", clean_up_tokenization_spaces=False
).save_pretrained(sys.argv[1])
