"""Topics of documents (Latent Dirichlet allocation), a word a cell, summed out cell by cell: the log
density and its gradient beside the two gathers, products and logs it consists of, and the temporary
memory of both for so many words and twice as many.

python benchmarks/topic_words.py: seconds of a call, the least of CALLS, in processor and in wall
time, of 1,000 documents of 100 words, 20 topics, 500 words to choose from.
"""

import time

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import numpyro.distributions as dist  # noqa: E402
from numpyro import plate, sample  # noqa: E402

import probml  # noqa: E402
from probml.device import load  # noqa: E402
from probml.evidence import density  # noqa: E402

DOCUMENTS, WORDS, TOPICS, VOCABULARY, CALLS = 1000, 100, 20, 500, 15
RNG = np.random.default_rng(0)


def topics_of_words(words, documents, topics, vocabulary, count):
    with plate("topic", topics):
        phi = sample("phi", dist.Dirichlet(jnp.ones(vocabulary)))
    with plate("document", count):
        theta = sample("theta", dist.Dirichlet(jnp.ones(topics)))
    with plate("word", len(words)):
        z = sample("z", dist.Categorical(theta[documents]))
        sample("w", dist.Categorical(phi[z]), obs=words)


def by_hand(theta: jax.Array, phi: jax.Array, words: jax.Array, documents: jax.Array) -> jax.Array:
    return jnp.log((theta[documents] * phi.T[words]).sum(-1)).sum()


def least(function, *arguments) -> tuple[float, float]:
    """Processor and wall seconds of a call."""
    jax.block_until_ready(function(*arguments))
    found = []
    for _ in range(CALLS):
        start = time.process_time(), time.perf_counter()
        jax.block_until_ready(function(*arguments))
        found.append((time.process_time() - start[0], time.perf_counter() - start[1]))
    processor, wall = zip(*found, strict=True)
    return min(processor), min(wall)


def memory(function, *arguments) -> float:
    """Megabytes that a call takes for a while."""
    return function.lower(*arguments).compile().memory_analysis().temp_size_in_bytes / 1e6


def main() -> None:
    for documents in (DOCUMENTS, 2 * DOCUMENTS):
        count = documents * WORDS
        words = RNG.integers(VOCABULARY, size=count)
        owners = np.repeat(np.arange(documents), WORDS)
        point = {"phi": RNG.dirichlet(np.ones(VOCABULARY), TOPICS),
                 "theta": RNG.dirichlet(np.ones(TOPICS), documents)}
        model = probml.model(topics_of_words)(topics=TOPICS, vocabulary=VOCABULARY,
                                              count=documents)
        held = model.at(point)._read({"words": words, "documents": owners}).trimmed()
        plan = held.plan()
        rows, known = load.load(held, plan, params=point)
        u = density.to_unbounded(plan, point, known)
        ours = jax.jit(lambda u, known, rows,
                       plan=plan: density.log_posterior(plan, known, rows)(u))
        hand = jax.jit(jax.value_and_grad(by_hand, (0, 1)))
        theirs = tuple(map(jnp.asarray, (point["theta"], point["phi"], words, owners)))
        for name, own, arguments in (("density and gradient", ours, (u, known, rows)),
                                     ("gathers, products, logs", hand, theirs)):
            processor, wall = least(own, *arguments)
            print(f"{count} words, {name}: {processor:.4f} s of processor, {wall:.4f} s, "
                  f"{memory(own, *arguments):.1f} MB for a while", flush=True)


if __name__ == "__main__":
    main()
