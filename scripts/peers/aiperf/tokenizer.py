"""Makes a tokenizer that counts as `weir sim serve` does, so that AIPerf needs no network and client
and server count one prompt alike: a word with its leading space is one token, digits go in threes,
a run of line breaks is one token, any other sign is one.

It is trained until every word of the installed AIPerf's own prompt corpora is one token, and loses
no text: an unknown word becomes several tokens, never an "unknown" one, whose replacement the
server would count as it is written.

Usage: tokenizer.py FOLDER [SEED], with a python that has aiperf or agentx-harness.
"""

import re
import string
import sys
from pathlib import Path

import aiperf
from aiperf.common import random_generator
from aiperf.config.dataset.content import PromptConfig
from aiperf.dataset.generator.coding_content import CodingContentGenerator
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PIECE = r" ?\p{L}[\p{L}\p{M}]*|[0-9]{1,3}|[\r\n]+|[ \t]+(?= \p{L})|[ \t]+|[\s\S]"


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
    random_generator.init(seed)
    heard = Listener()
    generator = CodingContentGenerator(config=PromptConfig(), tokenizer=heard)
    generator._ensure_text_pool()
    yield from heard.texts
    for file in sorted(Path(aiperf.__file__).parent.glob("dataset/generator/assets/*.txt")):
        yield " ".join(file.read_text(errors="ignore").split())


def main():
    texts = list(corpora(int(sys.argv[2]) if len(sys.argv) > 2 else 42))
    words = sorted(set(re.findall("[^\\W\\d_]+", " ".join(texts))))
    signs = list(string.printable) + [f"{i:0{w}d}" for w in (1, 2, 3) for i in range(10**w)]
    runs = ["\n" * i for i in range(1, 9)] + [" " * i for i in range(1, 60)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(PIECE), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.train_from_iterator(
        texts + [" " + w for w in words] + words + signs + runs,
        trainers.BpeTrainer(special_tokens=["<|endoftext|>"], vocab_size=1_000_000, min_frequency=1, show_progress=False),
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", clean_up_tokenization_spaces=False)
    fast.save_pretrained(sys.argv[1])
    for text in texts:
        ids = fast.encode(text, add_special_tokens=False)
        if fast.decode(ids) != text:
            sys.exit("the tokenizer does not give back the text")
        if (pieces := len(pre_tokenizers.Split(Regex(PIECE), "isolated").pre_tokenize_str(text))) != len(ids):
            sys.exit(f"{len(ids)} tokens where the server counts {pieces}")


main()
