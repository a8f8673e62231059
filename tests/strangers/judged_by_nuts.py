"""Programs of strangers whose default posterior is judged by NumPyro's own NUTS on a plain function.

The moments that NUTS found are stored in `nuts_of_strangers.json`;
`python tests/strangers/judged_by_nuts.py NAME …` computes them, in float64.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS, init_to_median

from first_cases import case

STORED = Path(__file__).with_name("nuts_of_strangers.json")
MEAN, SD = 0.2, 0.15  # posterior standard deviations, and a share of one
HEAVY = 0.25, 0.2  # the same where tails are heavy
SHARE = 0.06  # of the mean of an answer, which is an average over draws, too
NOISE = 0.08  # of 4,000 draws of either side that may be worth few
PROGRAMS: dict[str, Callable[[], "Program"]] = {}


class Program(NamedTuple):
    """A stranger's program.

    Attributes:
        model: the bound model.
        data: what is given to `fit`.
        plain: NumPyro's function, without arguments; its deterministic site `predicted` is what
            `predict` must give on average.
        new: rows of which `site` is predicted.
        ask: what else is asked of the fit.
        heavy: parameters whose posterior has heavy tails.
        weights: of the rows.
        answers: deterministic site of the plain function → what the fit answers instead.
    """

    model: Any
    data: Mapping[str, Any]
    plain: Callable[[], None]
    new: Mapping[str, Any]
    site: str | None
    ask: Callable[[Any, Mapping[str, Any]], None]
    heavy: tuple[str, ...] = ()
    weights: Any = None
    answers: Mapping[str, Callable[[Any], Any]] = {}


def program(mechanisms: str) -> Callable[[Callable[[], Program]], Callable[[], Program]]:
    """Keep a program as a case."""
    def add(make: Callable[[], Program]) -> Callable[[], Program]:
        def ask() -> None:
            judge(make(), stored()[make.__name__])

        ask.__name__ = make.__name__
        case(mechanisms)(ask)
        PROGRAMS[make.__name__] = make
        return make
    return add


def judge(own: Program, truth: Mapping[str, Any]) -> None:
    """Fit by default, and compare with NUTS unless the fit says that it is not to be relied on."""
    fit = own.model.fit(own.data, weights=own.weights, seed=0)
    assert len(fit.summary())
    predicted = None if own.site is None else fit.predict(own.new, own.site)
    own.ask(fit, own.data)
    answers = {name: np.asarray(answer(fit), float) for name, answer in own.answers.items()}
    if not fit.converged or fit.warnings:
        return
    wrong = [*differences(fit, own, truth)]
    if predicted is not None:
        wrong += different("predict", np.asarray(predicted, float), None, truth["predicted"],
                           (MEAN, SD))
    for name, value in answers.items():
        wrong += different(name, value, None, truth[name], (MEAN, SD), SHARE)
    assert not wrong, f"{'; '.join(wrong)}: {fit.status}"


def differences(fit: Any, own: Program, truth: Mapping[str, Any]) -> list[str]:
    """Parameters whose mean or standard deviation is not that of NUTS."""
    drawn, found = fit.draws(4000, seed=0), []
    for name, moments in truth.items():
        if name not in drawn or name == "predicted" or name in own.answers:
            continue
        values = np.asarray(drawn[name], float)
        bounds = HEAVY if name in own.heavy else (MEAN, SD)
        found += different(name, values.mean(0), values.std(0), moments, bounds)
    assert set(drawn) & set(truth), f"nothing to compare: {sorted(drawn)} and {sorted(truth)}"
    return found


def different(name: str, mean: np.ndarray, sd: np.ndarray | None, truth: Mapping[str, Any],
              bounds: tuple[float, float], share: float = 0.0) -> list[str]:
    """In words, where the largest difference is beyond its bound, and beyond a share of the mean."""
    middle, width = np.asarray(truth["mean"]), np.asarray(truth["sd"])
    if np.shape(mean) != middle.shape:
        return [f"{name}: shape {np.shape(mean)}, expected {middle.shape}"]
    moves = width > 1e-9
    off = np.abs(mean - middle)
    away = np.where(moves & ~(off < share * np.abs(middle)), off / np.where(moves, width, 1.0), 0.0)
    out = []
    if not np.max(away) < bounds[0] + NOISE:
        at = np.unravel_index(np.argmax(away), away.shape)
        out.append(f"{name}{[int(i) for i in at]}: mean {mean[at]:.4g}, NUTS {middle[at]:.4g}, "
                   f"{away[at]:.2f} sd")
    if sd is not None:
        ratio = np.where(moves, sd / np.where(moves, width, 1.0), 1.0)
        if not np.max(np.abs(ratio - 1)) < bounds[1] + NOISE:
            at = np.unravel_index(np.argmax(np.abs(ratio - 1)), ratio.shape)
            out.append(f"{name}{[int(i) for i in at]}: sd {ratio[at]:.2f} of NUTS's")
    return out


def stored() -> dict[str, Any]:
    return json.loads(STORED.read_text()) if STORED.exists() else {}


def sampled(own: Program, seed: int = 14) -> dict[str, Any]:
    """Mean and standard deviation of every site, by four chains of NumPyro's NUTS."""
    kernel = NUTS(own.plain, target_accept_prob=0.9, init_strategy=init_to_median())
    sampler = MCMC(kernel, num_warmup=700, num_samples=1000, num_chains=4,
                   chain_method="vectorized", progress_bar=False)
    sampler.run(jax.random.key(seed))
    out, worst, fewest = {}, 1.0, np.inf
    for name, value in sampler.get_samples(group_by_chain=True).items():
        values = np.asarray(value, float)
        sd = values.std((0, 1))
        moves = sd > 1e-9
        with np.errstate(all="ignore"):
            worst = max(worst, float(np.max(np.where(moves, split_gelman_rubin(values), 1.0))))
            fewest = min(fewest, float(np.min(np.where(moves, effective_sample_size(values), np.inf))))
        out[name] = {"mean": rounded(values.mean((0, 1))), "sd": rounded(sd)}
    lost = int(np.asarray(sampler.get_extra_fields(True)["diverging"]).sum())
    print(f"r_hat {worst:.3f}, ess {fewest:.0f}, divergent {lost}", flush=True)
    return out


def rounded(values: np.ndarray) -> Any:
    return np.vectorize(lambda v: float(f"{v:.5g}"), otypes=[float])(values).tolist()


def main(names: list[str]) -> None:
    import time

    import eighteenth_cases  # noqa: F401
    import eleventh_cases  # noqa: F401
    import fifteenth_cases  # noqa: F401
    import fourteenth_cases  # noqa: F401
    import nineteenth_cases  # noqa: F401
    import ninth_cases  # noqa: F401
    import seventeenth_cases  # noqa: F401
    import sixteenth_cases  # noqa: F401
    import tenth_cases  # noqa: F401
    import thirteenth_cases  # noqa: F401
    import twelfth_cases  # noqa: F401
    import twentieth_cases  # noqa: F401
    from judged_by_nuts import PROGRAMS as programs

    jax.config.update("jax_enable_x64", True)
    for name in names or programs:
        if not names and name in stored():
            continue
        began = time.time()
        print(name, flush=True)
        found = sampled(programs[name]())
        print(f"   {time.time() - began:.0f} s", flush=True)
        every = {**stored(), name: found}
        STORED.write_text("{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(every[key])}"
                                             for key in sorted(every)) + "\n}\n")


if __name__ == "__main__":
    import sys

    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    main(sys.argv[1:])
