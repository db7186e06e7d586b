"""Make internal/prompt/testdata/count: small tokenizers of the kinds in use, trained on Weir's own
documents with the tokenizers library, and how many tokens they make of some texts.

    pip install tokenizers==0.23.3
    python3 scripts/peers/tokens/golden.py
"""
import glob
import json
import os

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

root = os.path.join(os.path.dirname(__file__), "..", "..", "..")
out = os.path.join(root, "internal", "prompt", "testdata", "count")
corpus = [open(p, encoding="utf-8").read() for p in sorted(glob.glob(os.path.join(root, "docs", "*.md")))]
corpus.append(open(os.path.join(root, "README_zh.md"), encoding="utf-8").read())

TEXTS = [
    "hello there", " two words", "A Sentence. And another one!", "it's John's, they'll  say   so\n\n\n  indented\n\tcode();\n",
    "x = 12345678 + 3.14159e-10", "trailing   ", "\n\n", " ", "   \n   x", "line\r\nbreak\r\n\r\n  end",
    "naïve café übergrößen Straße", "日本語のテキスト、そして中文。", "emoji 🙂🚀 and e\u0301", "a\u00a0b\u3000c\u2003\u2003d\u000be\u0085f",
    "CamelCaseWordsAREFun DON'T", "<think>hm</think>ok", "if (a[0] != b->c) { return \"x\\n\"; }  // comment",
    "https://example.org/a/b?c=d&e=f#g", "١٢٣٤ ½ ² Ⅷ", "tabs\t\tand\t spaces \t\n\t\n x",
]


def byte_level(pattern, size=700):
    t = Tokenizer(models.BPE())
    if pattern is None:
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    else:
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ])
    t.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=["<think>", "</think>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def deepseek():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
        pre_tokenizers.Split(Regex(r"[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
        pre_tokenizers.Split(Regex(
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    t.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=700, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def sentencepiece():
    t = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.Replace(" ", "▁")])
    t.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    t.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=900, show_progress=False, limit_alphabet=120,
        special_tokens=["<unk>"] + ["<0x%02X>" % b for b in range(256)]))
    # The library marks the tokens of bytes as special, the models in use do not.
    j = json.loads(t.to_str())
    j["added_tokens"] = [a for a in j["added_tokens"] if a["content"] == "<unk>"]
    return Tokenizer.from_str(json.dumps(j))


for name, t in {
    "gpt2": byte_level(None, 1600), "llama3": byte_level(LLAMA3), "qwen": byte_level(QWEN), "o200k": byte_level(O200K),
    "deepseek": deepseek(), "sentencepiece": sentencepiece(),
}.items():
    with open(os.path.join(out, name + ".json"), "w", encoding="utf-8") as f:
        json.dump({
            "tokenizer": json.loads(t.to_str()),
            "texts": [{"text": s, "tokens": len(t.encode(s, add_special_tokens=False).ids)} for s in TEXTS],
        }, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
