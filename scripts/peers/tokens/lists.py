"""Checks the word lists that Weir makes from tokenizer files with the tokenizers library.

For every file: Weir lists its words and their ids; random text of 1,000 words at a time must be
encoded to exactly these ids, behind one word. A Unigram file is trained here, since no
package has one. Prints a table.
"""

import json
import os
import random
import subprocess
import sys

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers


def unigram(path, words):
    """Trains a Unigram tokenizer on random text of words, as T5's and with one Metaspace."""
    t = tokenizers.Tokenizer(models.Unigram())
    t.normalizer = normalizers.NFKC()
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    r = random.Random(1)
    text = (" ".join(r.choice(words) for _ in range(200)) for _ in range(2000))
    t.train_from_iterator(text, trainers.UnigramTrainer(vocab_size=6000, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False))
    t.save(path)


def main():
    packages = sys.argv[1]
    files = []
    for d in sorted(os.listdir(packages)):
        path = os.path.join(packages, d, "package", "models", "tokenizer.json")
        if os.path.exists(path):
            files.append((d, path))
    base = json.loads(subprocess.check_output([os.environ["TOKENS"], "words"]))["words"]
    path = os.path.join(packages, "unigram.json")
    unigram(path, base)
    files.append(("trained Unigram", path))
    print("| file | model | words | first | texts | words of text | same ids |")
    print("|---|---|---|---|---|---|---|")
    bad = 0
    for name, path in files:
        got = json.loads(subprocess.check_output([os.environ["TOKENS"], "words", path]))
        words, ids, first = got["words"], got["ids"], got["first"]
        t = tokenizers.Tokenizer.from_file(path)

        def encode(s):
            return t.encode(s, add_special_tokens=False).ids

        r = random.Random(2)
        same = 0
        rounds = 20
        lead = encode(" the")
        for _ in range(rounds):
            pick = [r.randrange(len(words)) for _ in range(1000)]
            same += encode(" the" + "".join(" " + words[i] for i in pick)) == lead + [ids[i] for i in pick]
        # The first words are one token each where a template trims the message.
        alone = sum(len(encode(w)) == 1 for w in words[:first])
        print("| %s | %s | %d | %d | %d | %d | %d |" % (name, json.load(open(path))["model"].get("type"), len(words), alone, rounds, rounds * 1000, same))
        bad += same != rounds or alone != first
    sys.exit(1 if bad else 0)


main()
