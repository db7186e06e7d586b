"""Makes a tokenizer that counts as `weir sim serve` does, so that AIPerf needs no network and client
and server count one prompt alike. Text becomes words, each with a leading space and one token:
such words do not merge with their neighbours, wherever a prompt is cut, so what AIPerf makes of n
tokens the server counts as n, as it does what Weir makes.

It is trained until every word of the installed AIPerf's own prompt corpora is one token. An unknown
word becomes several tokens, never an "unknown" one, whose replacement the server would count as
it is written.

Usage: tokenizer.py FOLDER [SEED], with a python that has aiperf or agentx-harness.
"""

import re
import sys
from pathlib import Path

import aiperf
from aiperf.common import random_generator
from aiperf.config.dataset.content import PromptConfig
from aiperf.dataset.generator.coding_content import CodingContentGenerator
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast


class Listener:
    """Stands in for a tokenizer and keeps what it is given."""

    bos_token_id = eos_token_id = block_separation_token_id = 0

    def __init__(self):
        self.texts = []

    def encode(self, text, **_):
        self.texts.append(text)
        return [0] * 512

    def decode(self, tokens, **_):
        return ""


def corpora(seed):
    """The texts that AIPerf cuts prompts from: made-up code, and what it ships."""
    random_generator.init(seed)
    heard = Listener()
    generator = CodingContentGenerator(config=PromptConfig(), tokenizer=heard)
    generator._ensure_text_pool()
    yield from heard.texts
    for file in sorted(Path(aiperf.__file__).parent.glob("dataset/generator/assets/*.txt")):
        yield " ".join(file.read_text(errors="ignore").split())


def main():
    texts = list(corpora(int(sys.argv[2]) if len(sys.argv) > 2 else 42))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace(Regex(r"\P{L}+"), " "), normalizers.Strip(), normalizers.Prepend(" ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r" ?\p{L}+"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    trainer = trainers.BpeTrainer(special_tokens=["<|endoftext|>"], vocab_size=1_000_000, min_frequency=1, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", clean_up_tokenization_spaces=False)
    fast.save_pretrained(sys.argv[1])
    for text in texts:
        ids = fast.encode(text, add_special_tokens=False)
        words = len(re.findall(r"[^\W\d_]+", text))
        if len(ids) != words or len(fast.decode(ids).split(" ")) != words + 1:
            sys.exit(f"{words} words are {len(ids)} tokens")


main()
