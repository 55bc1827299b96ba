"""Token data that needs no download: a sequence with something to learn, the same for the same arguments.

Half of the tokens follow from the one before, the others are drawn by Zipf's law; so a model first learns how frequent
each token is, then the pairs."""
import array
import os
import random


def make_tokens(vocab, count, seed=1):
    rng = random.Random(seed)
    # A table of draws by Zipf's law, its ranks spread over the ids.
    size = 1 << 16
    weights = [1.0 / (rank + 10) for rank in range(vocab)]
    ids = list(range(vocab))
    rng.shuffle(ids)
    table = rng.choices(ids, weights, k=size)
    bits = rng.getrandbits
    tokens = array.array("i", bytes(4 * count))
    last = 0
    for i in range(count):
        draw = bits(17)
        last = (last * 31 + 17) % vocab if draw & 1 else table[draw >> 1]
        tokens[i] = last
    return tokens


def write_text(tokens, path, line=1024):
    """As text for `strata train --set data.tokenizer=ids`."""
    with open(path, "w") as f:
        for at in range(0, len(tokens), line):
            f.write(" ".join(map(str, tokens[at:at + line])) + "\n")


def command(script, arguments):
    """A command line for a page: folders of absolute paths left out."""
    return " ".join([script] + [os.path.basename(a) if a.startswith("/") else a for a in arguments])
